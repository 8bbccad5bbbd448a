//! Tests of the role that a process takes, in made-up environments.

use super::*;

fn role(plan_ranks: usize, variables: &[(&str, &str)]) -> Result<Role, LaunchError> {
    role_from(plan_ranks, |name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn place(plan_ranks: usize, variables: &[(&str, &str)]) -> JobPlace {
    match role(plan_ranks, variables).unwrap() {
        Role::Rank(place) => place,
        Role::Launcher => panic!("expected a rank"),
    }
}

fn code(variables: &[(&str, &str)]) -> &'static str {
    role(4, variables).unwrap_err().code()
}

const TORCHRUN: [(&str, &str); 8] = [
    ("RANK", "2"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "2"),
    ("LOCAL_WORLD_SIZE", "4"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
    ("MASTER_ADDR", "localhost"),
    ("MASTER_PORT", "29500"),
];
const MPIRUN: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "3"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "3"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ("PMIX_NAMESPACE", "prterun-host-12@1"),
];
const MPIEXEC: [(&str, &str); 5] =
    [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "4"), ("ZERO_JOB", "mine")];
const SRUN: [(&str, &str); 6] = [
    ("SLURM_PROCID", "1"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_STEP_NUM_NODES", "1"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "0"),
];

#[test]
fn alone_is_the_launcher() {
    assert_eq!(role(4, &[]).unwrap(), Role::Launcher);
    assert_eq!(role(4, &[("ZERO_JOB", "mine")]).unwrap(), Role::Launcher);
}

#[test]
fn launchers_are_understood() {
    for (variables, rank) in [(&TORCHRUN[..], 2), (&MPIRUN, 3), (&MPIEXEC, 1), (&SRUN, 1)] {
        let place = place(4, variables);
        assert_eq!((place.rank, place.world, place.local_rank, place.one_host), (rank, 4, rank, true));
        assert_eq!((place.launcher_pid, place.join_timeout.as_secs()), (None, 60));
    }
}

#[test]
fn our_own_launcher_is_known() {
    let ours = [("RANK", "0"), ("WORLD_SIZE", "2"), ("ZERO_JOB", "9-1"), ("ZERO_LAUNCHER_PID", "9")];
    let place = place(2, &[&ours[..], &[("ZERO_JOIN_TIMEOUT_S", "5")]].concat());
    assert_eq!((place.job.as_str(), place.launcher_pid, place.join_timeout.as_secs()), ("9-1", Some(9), 5));
}

#[test]
fn jobs_differ_where_their_launchers_say_so() {
    let job = |port: &'static str| {
        let mut variables = TORCHRUN;
        variables[7].1 = port;
        place(4, &variables).job
    };
    assert_eq!(job("29500"), job("29500"));
    assert_ne!(job("29500"), job("29501"));
}

#[test]
fn a_batch_script_is_no_rank() {
    let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "0"), ("SLURM_JOB_ID", "77")];
    assert_eq!(role(4, &batch).unwrap(), Role::Launcher);
    let shell = [&batch[..], &[("SLURM_STEP_ID", "4294967290")]].concat();
    assert_eq!(role(4, &shell).unwrap(), Role::Launcher);
}

#[test]
fn a_launcher_inside_another_counts() {
    let srun_per_node = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_STEP_ID", "0")];
    assert_eq!(place(4, &[&TORCHRUN[..], &srun_per_node].concat()).rank, 2);
    assert_eq!(place(4, &[&MPIRUN[..], &srun_per_node].concat()).rank, 3);
}

#[test]
fn srun_says_by_its_own_variables_which_rank_of_a_host_it_is() {
    // With --mpi=pmi2, on the second of two hosts.
    let srun = [
        ("PMI_RANK", "3"),
        ("PMI_SIZE", "4"),
        ("PMI_JOBID", "77.0"),
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
        ("SLURM_NODEID", "1"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
    ];
    let place = place(4, &srun);
    assert_eq!((place.rank, place.local_rank, place.local_world, place.one_host), (3, 1, Some(2), false));
    assert_eq!(company(&srun), Some((3, 4)));
}

#[test]
fn srun_lists_the_ranks_of_each_host() {
    let on =
        |list, node| place(4, &[&SRUN[..], &[("SLURM_STEP_TASKS_PER_NODE", list), ("SLURM_NODEID", node)]].concat());
    for (list, node, ranks) in [
        ("4", "0", Some(4)),
        ("3,1", "0", Some(3)),
        ("3,1", "1", Some(1)),
        ("2(x3),1", "2", Some(2)),
        ("2(x3),1", "3", Some(1)),
        ("2(x3),1", "4", None),
        ("many", "0", None),
        ("2", "zero", None),
    ] {
        assert_eq!(on(list, node).local_world, ranks, "{list} {node}");
    }
    assert_eq!(place(4, &SRUN).local_world, None);
}

#[test]
fn mpiexec_counts_where_srun_has_started_its_helpers() {
    let helper = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_LOCALID", "0"), ("SLURM_STEP_ID", "0")];
    let place = place(4, &[&MPIEXEC[..], &helper].concat());
    assert_eq!((place.rank, place.local_rank, place.local_world), (1, 1, Some(4)));
}

#[test]
fn several_hosts_are_seen() {
    let mut torchrun = TORCHRUN;
    torchrun[2].1 = "0";
    torchrun[3].1 = "2";
    let mut srun = SRUN;
    srun[3].1 = "2";
    assert!(!place(4, &torchrun).one_host);
    assert!(!place(4, &srun).one_host);
}

#[test]
fn z0305_a_shell_that_is_one_task_of_a_launcher_names_what_makes_it_a_rank() {
    let slurm = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "1"),
        ("SLURM_LOCALID", "0"),
    ];
    let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    let mpirun = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
    let pod = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "pod")];
    let of_both = [&slurm[..], &pmi].concat();
    for variables in [&slurm[..], &pmi, &mpirun, &[&mpirun[..], &[("PMIX_RANK", "0")]].concat(), &pod, &of_both] {
        let error = role(4, variables).unwrap_err();
        assert_eq!(error.code(), "Z0305");
        let help = error.help();
        let (_, unset) = help.trim_end_matches('`').split_once("`unset ").expect("what to unset");
        let unset: Vec<_> = unset.split(' ').collect();
        let (gone, left): (Vec<_>, Vec<_>) = variables.iter().partition(|(name, _)| unset.contains(name));
        assert_eq!(gone.len(), unset.len(), "{help}");
        assert_eq!(role(4, &left).unwrap(), Role::Launcher, "{help}");
    }
    assert!(!role(4, &[("RANK", "0"), ("WORLD_SIZE", "2")]).unwrap_err().help().contains("unset"));
}

#[test]
fn contradictions_are_errors() {
    assert_eq!(code(&[("RANK", "0")]), "Z0301");
    assert_eq!(code(&[("WORLD_SIZE", "4")]), "Z0301");
    assert_eq!(code(&[("LOCAL_RANK", "0")]), "Z0301");
    assert_eq!(code(&[("RANK", "one"), ("WORLD_SIZE", "4")]), "Z0302");
    assert_eq!(code(&[("RANK", "-1"), ("WORLD_SIZE", "4")]), "Z0302");
    assert_eq!(code(&[("RANK", ""), ("WORLD_SIZE", "4")]), "Z0302");
    assert_eq!(code(&[("RANK", "4"), ("WORLD_SIZE", "4")]), "Z0303");
    let local = [("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")];
    assert_eq!(code(&[&[("RANK", "2"), ("WORLD_SIZE", "4")][..], &local].concat()), "Z0303");
    assert_eq!(code(&[&[("RANK", "0"), ("WORLD_SIZE", "4")][..], &MPIRUN].concat()), "Z0304");
    assert_eq!(code(&[&[("RANK", "1"), ("WORLD_SIZE", "2")][..], &SRUN].concat()), "Z0304");
    assert_eq!(code(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("ZERO_JOB", "a")]), "Z0305");
    assert_eq!(code(&[("RANK", "0"), ("WORLD_SIZE", "4")]), "Z0306");
}

/// Bare `prterun` numbers ranks and says nothing more; the launcher of Open MPI 5, which is the same program, sets all
/// variables.
#[test]
fn z0301_a_rank_of_bare_prterun_is_told_how_it_is_told_more() {
    let bare = [("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-host-12@1")];
    let error = role(4, &bare).unwrap_err();
    assert_eq!(error.code(), "Z0301");
    assert!(error.to_string().contains("has `PMIX_RANK` but not `OMPI_COMM_WORLD_SIZE`"), "{error}");
    assert!(error.help().contains("`prterun --personality ompi`"), "{}", error.help());
    assert_eq!(company(&bare), Some((1, 4)));
    // If something else has numbered the ranks, that counts.
    for (variables, rank) in [(&MPIRUN[..], 3), (&SRUN, 1), (&[("RANK", "2"), ("WORLD_SIZE", "4")], 2)] {
        assert_eq!(place(4, &[variables, &bare].concat()).rank, rank);
    }
}

#[test]
fn launchers_may_say_the_same() {
    let variables = [&[("RANK", "1"), ("WORLD_SIZE", "4")][..], &SRUN].concat();
    assert_eq!(place(4, &variables).rank, 1);
}

#[test]
fn patience_is_a_number_of_seconds_up_to_a_day() {
    let torchrun = |seconds| [&TORCHRUN[..], &[("ZERO_JOIN_TIMEOUT_S", seconds)]].concat();
    for (seconds, expected) in [("1", 1), ("86400", 86_400)] {
        assert_eq!(place(4, &torchrun(seconds)).join_timeout, Duration::from_secs(expected));
    }
    assert_eq!(place(4, &TORCHRUN).join_timeout, Duration::from_secs(60));
    for seconds in ["0", "86401", "9000000000000000000"] {
        let error = role(4, &torchrun(seconds)).unwrap_err();
        let words = format!("the environment has `ZERO_JOIN_TIMEOUT_S` = {seconds}, expected 1 to 86400 seconds");
        assert_eq!((error.code(), error.to_string()), ("Z0315", words));
    }
    for seconds in ["-1", "nan", "a minute", "9e18", "1.5", ""] {
        assert_eq!(code(&torchrun(seconds)), "Z0302", "{seconds}");
    }
}

fn company(variables: &[(&str, &str)]) -> Option<(usize, usize)> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    company_from(4, lookup).map(|place| (place.rank, place.world))
}

#[test]
fn ranks_with_an_error_in_their_environment_find_one_another_all_the_same() {
    let job = ("ZERO_JOB", "a");
    assert_eq!(company(&TORCHRUN), Some((2, 4)));
    assert_eq!(company(&[("RANK", "1"), job]), Some((1, 4)));
    assert_eq!(company(&[("RANK", "1"), ("WORLD_SIZE", "2"), job]), Some((1, 2)));
    assert_eq!(company(&[("RANK", "1"), ("WORLD_SIZE", "two"), job]), Some((1, 4)));
    assert_eq!(company(&[&[("RANK", "0"), ("WORLD_SIZE", "4")][..], &MPIRUN].concat()), Some((0, 4)));
    assert_eq!(company(&[&TORCHRUN[..], &[("ZERO_JOIN_TIMEOUT_S", "0")]].concat()), Some((2, 4)));
    // No other rank could find these processes.
    assert_eq!(company(&[]), None);
    assert_eq!(company(&[("RANK", "one"), ("WORLD_SIZE", "4"), job]), None);
    assert_eq!(company(&[("RANK", "4"), ("WORLD_SIZE", "4"), job]), None);
    assert_eq!(company(&[("RANK", "1"), ("WORLD_SIZE", "4")]), None);
    assert_eq!(company(&[("RANK", "0"), ("WORLD_SIZE", "18446744073709551615"), job]), None);
    assert_eq!(
        company(&[("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "99999999999"), job]),
        None
    );
}

#[test]
fn our_own_launcher_may_run_inside_another_one() {
    let own = [("RANK", "1"), ("WORLD_SIZE", "4"), ("ZERO_LAUNCHER_PID", "77"), ("ZERO_JOB", "a")];
    let place = place(4, &[&own[..], &MPIRUN].concat());
    assert_eq!((place.rank, place.launcher_pid), (1, Some(77)));
}
