//! A reader on a host of its own has the parameters of ranks on two others, from the rank that owns each byte.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use zero_publish::client::{Reader, block_on, sleep};
use zero_tests::readers::{Tensors, exported, fetched};

use crate::net::{Mpi, Net, words};

const STEPS: u64 = 30;
const URL: &str = "http://10.99.0.1:7000";

/// Reads all versions from a host, and returns the last one with its step.
fn read(host: &str) -> (u64, Tensors) {
    let network = File::open(format!("/run/netns/{host}")).expect("a network");
    // This thread alone: it is on that host from here on.
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network))
        .expect("a host to be on");
    let mut reader = Reader::new(URL, None, "elsewhere");
    block_on(async {
        let began = Instant::now();
        while reader.join().await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody serves at {URL}");
            sleep(Duration::from_millis(20)).await;
        }
        let (mut last, mut after) = (None, None);
        while let Ok(Some(version)) = reader.wait(after.as_ref(), 20).await {
            let Ok(fetching) = reader.fetch(&version).await else { break };
            let urls: Vec<_> = fetching.layout.ranks.iter().map(|rank| rank.url.clone()).collect();
            // Rank 0 is where readers reach it, and rank 1 on its own host.
            assert_eq!(urls, [None, Some("http://10.99.0.2:7000".to_owned())]);
            assert!(fetching.layout.tensors.iter().any(|tensor| tensor.parts.iter().any(|part| part.rank == 1)));
            drop(fetching);
            let tensors = fetched(&reader, &version).await.expect("a version that nobody gives up");
            reader.acknowledge(&version, None).await.expect("a run that waits for this");
            last = Some((version.0.split_once('-').expect("a step").0.parse().expect("a number"), tensors));
            after = Some(version);
        }
        last.expect("a version")
    })
    .expect("a runtime")
}

#[test]
fn bytes_come_from_the_host_that_owns_them() {
    let Some(net) = Net::of(3) else { return };
    for mpi in Mpi::all() {
        let folder = net.own().join("exported");
        let _ = std::fs::remove_dir_all(&folder);
        let program = format!(
            "{} --steps {STEPS} --held-out 0 --sample 0 --data {} --publish 10.99.0.1:7000 --publish-every 1 --export {} \
             --export-dtype bf16",
            env!("CARGO_BIN_EXE_published_hosts"),
            crate::text().display(),
            folder.display()
        );
        let mut run = net.launch(mpi, 2, 1, &[("ZERO_MPI", &mpi.library())], &program);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a launcher");
        let (step, tensors) = std::thread::scope(|scope| scope.spawn(|| read(&net.hosts[2])).join().expect("a reader"));
        let output = run.wait_with_output().expect("an end");
        assert!(output.status.success(), "{mpi:?}: {}", words(&output));
        assert_eq!(step, STEPS, "{mpi:?}: {}", words(&output));
        assert!(tensors == exported(&folder), "{mpi:?}: other weights than those that were exported");
    }
}
