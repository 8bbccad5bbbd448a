use zero_plan::diagnostic::line_column;
use zero_plan::{Axis, Config, DeviceKind, Often, OptimizerKind, Precision, Recompute, TransportKind, Width};

use super::*;

fn options(ranks: u32) -> ImportOptions {
    ImportOptions {
        ranks: Some(ranks),
        length: Some(512),
        model: Some(ModelSource::Example("gpt".to_owned())),
        ..ImportOptions::default()
    }
}

fn imported(text: &str, options: &ImportOptions) -> ImportedSpec {
    import(text, options).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"))
}

/// The only mistake of a configuration: its code, its place, its message and its label.
fn refused(text: &str, options: &ImportOptions) -> (&'static str, Option<(usize, usize)>, String, String) {
    let problems = import(text, options).expect_err(text);
    assert_eq!(problems.len(), 1, "{text}: {problems:#?}");
    let at = problems[0].span.as_ref().map(|span| line_column(text, span.start));
    (problems[0].code, at, problems[0].message.clone(), problems[0].label.clone())
}

/// The common part of all configurations below.
fn base(zero: usize, stage: u8) -> Config {
    let mesh = zero_plan::Mesh { zero, ..zero_plan::Mesh::of_zero(zero) };
    Config {
        mesh,
        stage,
        sequences: 4,
        length: 512,
        ..imported("{\"train_batch_size\": 1}", &options(1)).spec.config()
    }
}

const BF16: Precision = Precision {
    compute: Width::BF16,
    params: Width::BF16,
    reduce: Width::BF16,
    master: Width::F32,
    moments: Width::F32,
};

#[test]
fn each_deepspeed_configuration_gives_its_config() {
    let at_3 = Config { prefetch: 1, bucket_bytes: 2_000_000_000, sequences: 2, ..base(8, 3) };
    let table: [(&str, u32, Config); 12] = [
        (r#"{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}"#, 8, at_3),
        (
            r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
                "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7}}"#,
            8,
            Config { prefetch: 0, stage: 2, micro_batches: 4, bucket_bytes: 100_000_000, precision: BF16, ..at_3 },
        ),
        (
            r#"{"train_batch_size": 64, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1}}"#,
            8,
            Config { prefetch: 0, stage: 1, sequences: 4, micro_batches: 2, reduce: Often::PerStep, ..at_3 },
        ),
        // As stage 1 with its defaults, and as no section.
        (
            r#"{"train_batch_size": 64, "gradient_accumulation_steps": 2, "zero_optimization": true}"#,
            8,
            Config { prefetch: 0, stage: 1, sequences: 4, micro_batches: 2, reduce: Often::PerStep, ..at_3 },
        ),
        (
            r#"{"train_batch_size": 64, "zero_optimization": false}"#,
            8,
            Config { prefetch: 0, stage: 0, sequences: 8, ..at_3 },
        ),
        // The size of a bucket is not read at stage 0.
        (
            r#"{"train_batch_size": 64, "zero_optimization": {"stage": 0, "reduce_bucket_size": 1000}}"#,
            8,
            Config { prefetch: 0, stage: 0, sequences: 8, ..at_3 },
        ),
        (
            r#"{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, "mics_shard_size": 4}}"#,
            8,
            Config { mesh: zero_plan::Mesh { zero: 4, replica: 2, ..at_3.mesh }, ..at_3 },
        ),
        (
            r#"{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, "mics_shard_size": -1,
                "stage3_prefetch_bucket_size": 0}}"#,
            8,
            Config { prefetch: 0, ..at_3 },
        ),
        (
            r#"{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Muon", "params": {"lr": 0.02}},
                "zero_optimization": {"stage": 3}}"#,
            8,
            Config { optimizer: OptimizerKind::Muon, ..at_3 },
        ),
        (
            r#"{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                "bf16_optimizer_states": true}, "zero_optimization": {"stage": 3}}"#,
            8,
            Config {
                bucket_bytes: 1_000_000_000,
                precision: Precision { master: Width::BF16, moments: Width::BF16, ..BF16 },
                ..at_3
            },
        ),
        (
            r#"{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "communication_data_type": "fp32",
                "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 3}}"#,
            8,
            Config { precision: Precision { reduce: Width::F32, ..BF16 }, ..at_3 },
        ),
        // One rank gathers nothing ahead.
        (
            r#"{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}"#,
            1,
            Config { mesh: zero_plan::Mesh::of_zero(1), ..at_3 },
        ),
    ];
    for (text, ranks, expected) in table {
        let imported = imported(text, &options(ranks));
        assert_eq!((imported.framework, imported.spec.config()), (Framework::DeepSpeed, expected), "{text}");
    }
}

fn yaml(kind: &str, of_fsdp: &str) -> String {
    let section = if of_fsdp.is_empty() { String::new() } else { format!("fsdp_config:\n{of_fsdp}") };
    format!("distributed_type: {kind}\nmixed_precision: 'no'\nnum_machines: 2\nnum_processes: 16\n{section}")
}

#[test]
fn each_accelerate_configuration_gives_its_config() {
    let two_nodes = zero_plan::Mesh { nodes: 2, ..zero_plan::Mesh::of_zero(16) };
    let transport = TransportKind::Nccl;
    let full = Config { mesh: two_nodes, prefetch: 0, bucket_bytes: 1, transport, ..base(16, 3) };
    let hybrid = zero_plan::Mesh { zero: 8, replica: 2, ..two_nodes };
    let strategy = |name: &str| yaml("FSDP", &format!("  fsdp_sharding_strategy: {name}\n"));
    let at = |stage, mesh| Config { stage, mesh, ..full };
    let ddp = Config { bucket_bytes: 25 << 20, ..at(0, two_nodes) };
    let table = [
        (strategy("FULL_SHARD"), full),
        (strategy("1"), full),
        (strategy("SHARD_GRAD_OP"), at(2, two_nodes)),
        (strategy("NO_SHARD"), at(0, two_nodes)),
        (strategy("HYBRID_SHARD"), at(3, hybrid)),
        (strategy("HYBRID_SHARD_ZERO2"), at(2, hybrid)),
        (yaml("FSDP", "  fsdp_backward_prefetch: BACKWARD_PRE\n"), Config { prefetch: 1, ..full }),
        (yaml("FSDP", "  fsdp_backward_prefetch_policy: BACKWARD_POST\n"), full),
        (
            yaml("FSDP", "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n"),
            Config { prefetch: 1, gather: Often::PerStep, ..full },
        ),
        (
            yaml("FSDP", "  fsdp_activation_checkpointing: true\n").replace("'no'", "bf16"),
            Config { recompute: Recompute::Every(1), precision: BF16, ..full },
        ),
        (
            yaml("FSDP", "  fsdp_version: 2\n")
                + "parallelism_config:\n  parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 4\n",
            Config { prefetch: 1, ..at(3, zero_plan::Mesh { zero: 4, replica: 4, ..two_nodes }) },
        ),
        (yaml("MULTI_GPU", ""), ddp),
        (
            yaml("MULTI_GPU", "") + "use_cpu: true\n",
            Config { device: DeviceKind::Cpu, transport: TransportKind::Cluster, ..ddp },
        ),
        (
            yaml("MULTI_CPU", "").replace("num_machines: 2", "num_machines: 1"),
            Config {
                mesh: zero_plan::Mesh::of_zero(16),
                device: DeviceKind::Cpu,
                transport: TransportKind::Shm,
                ..ddp
            },
        ),
        (yaml("MULTI_GPU", "").replace("'no'", "bf16"), {
            Config { precision: Precision { compute: Width::BF16, ..Precision::default() }, ..ddp }
        }),
        (
            yaml("DEEPSPEED", "") + "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 4\n",
            Config { prefetch: 1, micro_batches: 4, bucket_bytes: 2_000_000_000, ..full },
        ),
    ];
    for (text, expected) in table {
        let imported = imported(&text, &ImportOptions { ranks: None, ..options(16) });
        assert_eq!((imported.framework, imported.spec.config()), (Framework::Accelerate, expected), "{text}");
    }
    let within = imported(&strategy("HYBRID_SHARD"), &options(16)).spec.mesh.within_node;
    assert_eq!(within, [Axis::Zero]);
}

#[test]
fn micro_batches_of_a_script_are_held_or_reduced_as_there() {
    let options = ImportOptions { ranks: None, micro_batches: Some(4), sequences: Some(2), ..options(16) };
    let held = imported(&yaml("FSDP", "  fsdp_version: 2\n"), &options).spec.config();
    assert_eq!((held.micro_batches, held.sequences, held.reduce), (4, 2, Often::PerStep));
    let zero_3 = yaml("DEEPSPEED", "") + "deepspeed_config:\n  zero_stage: 3\n";
    assert_eq!(imported(&zero_3, &options).spec.config().reduce, Often::PerMicroBatch);
}

#[test]
fn ranks_follow_from_the_batch_where_all_of_it_is_said() {
    let text = r#"{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}"#;
    assert_eq!(imported(text, &ImportOptions { ranks: None, ..options(1) }).spec.mesh.zero, 12);
}

#[test]
fn what_has_no_counterpart_is_listed_with_the_reason() {
    let text = r#"{"train_micro_batch_size_per_gpu": "auto", "steps_per_print": 10, "wall_clock_breakdown": false,
        "gradient_clipping": 1.0, "zero_optimization": {"stage": 3, "overlap_comm": false, "contiguous_gradients": true,
        "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "none"}, "stage3_max_live_parameters": 1e9}}"#;
    let imported = imported(text, &options(2));
    let told = |taken| {
        let notes = imported.notes.iter().filter(move |note| note.taken == taken);
        notes.flat_map(|note| note.settings.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        told(SettingFate::Lost),
        ["steps_per_print", "zero_optimization.overlap_comm", "zero_optimization.stage3_max_live_parameters",]
    );
    assert_eq!(told(SettingFate::Argument), ["gradient_clipping"]);
    assert_eq!(
        told(SettingFate::Missing),
        ["train_micro_batch_size_per_gpu", "mesh.nodes", "device", "batch.sequences"]
    );
    let file = imported.file("ds_config.json");
    assert!(
        file.starts_with("// From ds_config.json, a configuration of DeepSpeed.\n// without a counterpart:\n"),
        "{file}"
    );
    assert_eq!(parse(&file).as_ref(), Ok(&imported.spec), "comments change nothing");
    assert!(file.lines().all(|line| line.len() <= 100), "{file}");
}

#[test]
fn nearest_settings_are_told() {
    let nearest = |text: &str| {
        let notes = imported(text, &options(16)).notes;
        let nearest = notes.into_iter().filter(|note| note.taken == SettingFate::Nearest);
        nearest.flat_map(|note| note.settings).collect::<Vec<_>>()
    };
    assert_eq!(nearest(r#"{"fp16": {"enabled": true}, "train_batch_size": 16}"#), ["fp16.enabled"]);
    assert_eq!(
        nearest(&yaml("FSDP", "  fsdp_sharding_strategy: SHARD_GRAD_OP\n")),
        ["fsdp_config.fsdp_sharding_strategy"]
    );
    assert_eq!(nearest(&yaml("FSDP", "  fsdp_sharding_strategy: FULL_SHARD\n")), [""; 0]);
}

#[test]
fn z0155_unknown_key() {
    let text = "{\n  \"train_batch_size\": 8,\n  \"zero_optimization\": {\n    \"stage\": 2,\n    \"reduce_buket_size\": 5e8\n  }\n}";
    let (code, at, message, label) = refused(text, &options(8));
    assert_eq!((code, at), ("Z0155", Some((5, 5))));
    assert_eq!(message, "unknown key `reduce_buket_size` in `zero_optimization`");
    assert_eq!(label, "did you mean `reduce_bucket_size`?");
    let (_, _, _, label) = refused("{\"train_batch_size\": 8, \"overlap_comm\": true}", &options(8));
    assert_eq!(label, "did you mean `zero_optimization.overlap_comm`?");
    let text = yaml("FSDP", "  fsdp_version: 2\n  sharding_strategy: FULL_SHARD\n");
    let (code, at, _, label) = refused(&text, &options(16));
    assert_eq!((code, at, label.as_str()), ("Z0155", Some((7, 3)), "did you mean `fsdp_sharding_strategy`?"));
}

#[test]
fn all_mistakes_of_keys_come_at_once() {
    let text = r#"{"a": 1, "zero_optimization": {"stage": 4, "b": 2}, "bf16": {"enabled": 3}}"#;
    let codes: Vec<_> = import(text, &options(2)).unwrap_err().iter().map(|problem| problem.code).collect();
    assert_eq!(codes, ["Z0155", "Z0156", "Z0155", "Z0156"]);
}

#[test]
fn z0156_value_that_a_key_cannot_have() {
    for (text, at, label) in [
        ("{\"zero_optimization\": {\"stage\": 4}}", (1, 33), "expected a whole number from 0 to 3"),
        ("{\"zero_optimization\": 1}", (1, 23), "expected a section with keys, or true or false"),
        ("{\"train_batch_size\": 2.5}", (1, 22), "expected a whole number from 1 to 4294967295"),
        ("{\"train_batch_size\": 0}", (1, 22), "expected a whole number from 1 to 4294967295"),
        ("distributed_type: TPU\n", (1, 19), "expected one of NO, "),
        (
            "{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
            (1, 49),
            "expected false where `bf16` is enabled",
        ),
        (
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: FULL_SHARD\n",
            (4, 31),
            "expected true or false in version 2",
        ),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: a.json\n",
            (3, 26),
            "expected no other file",
        ),
    ] {
        let (code, found, _, said) = refused(text, &options(2));
        assert_eq!((code, found), ("Z0156", Some(at)), "{text}");
        assert!(said.starts_with(label), "{text}: {said}");
    }
}

#[test]
fn z0157_ranks_and_batch_that_do_not_come_out() {
    let three = r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}"#;
    let none = ImportOptions { ranks: None, ..options(1) };
    for (text, options, expected) in [
        ("{\"train_batch_size\": 8}", &none, "the file does not say how many ranks there are"),
        (three, &none, "the file does not say how many ranks there are"),
        (three, &options(8), "`train_batch_size` is 64, which is not 8 ranks x 4 samples x 3 micro-batches"),
        ("{\"train_batch_size\": 9}", &options(8), "`train_batch_size` is 9, which is not 8 ranks"),
        ("distributed_type: MULTI_GPU\nnum_processes: 4\n", &options(8), "the file is for 4 ranks, but `--ranks` is 8"),
        ("distributed_type: MULTI_GPU\nnum_processes: 9\nnum_machines: 2\n", &none, "9 ranks do not divide by 2 nodes"),
        (
            "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 3}}",
            &options(8),
            "groups of 3 ranks need stage 3 and a multiple of 3 ranks",
        ),
        (
            "{\"train_micro_batch_size_per_gpu\": 4}",
            &ImportOptions { sequences: Some(2), ..options(8) },
            "the file says 4, but `--sequences` is 2",
        ),
        (
            "distributed_type: FSDP\nnum_processes: 4\nparallelism_config:\n  parallelism_config_tp_size: 2\n",
            &none,
            "`tp` has 2 ranks, but a mesh has no such axis",
        ),
    ] {
        let (code, at, message, _) = refused(text, options);
        assert_eq!((code, message.as_str()), ("Z0157", expected), "{text}");
        assert_eq!(at.is_none(), message.starts_with("the file does not say"), "{text}");
    }
}

#[test]
fn rows_are_unique_and_lie_in_sections() {
    for rows in [keys::DEEPSPEED, keys::ACCELERATE] {
        for (i, row) in rows.iter().enumerate() {
            assert!(rows[..i].iter().all(|other| other.path != row.path), "{}", row.path);
            if let Some((section, _)) = row.path.rsplit_once('.') {
                let is_section =
                    |row: &&keys::KeyRow| matches!(row.expects, keys::Expects::Section | keys::Expects::Switch);
                assert!(rows.iter().filter(is_section).any(|row| row.path == section), "{}", row.path);
            }
        }
    }
}
