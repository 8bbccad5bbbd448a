//! Publications: 8192 parameters of two ranks in bf16, 16 KiB, which devices and links move at round rates.

use zero_plan::{DeviceKind, Publish, TransportKind, Width};

use super::*;
use crate::simulate::PublicationPrediction;

fn published(hardware: &str, config: Config) -> PublicationPrediction {
    let publish = Publish { dtype: Width::BF16, copies: 2 };
    let unit = Unit { params: 8192, takes: 8192, ..Unit::NONE };
    let mut found = None;
    on_units(hardware, Config { publish, ..config }, &[unit], |plan, _, hardware| {
        found = PublicationPrediction::of(plan, hardware, 1);
    });
    found.expect("a plan that publishes")
}

fn assert_us(found_s: f64, us: f64) {
    assert!((found_s * 1e6 - us).abs() < 1e-6, "{} us, expected {us} us", found_s * 1e6);
}

/// The keys of a prediction with a publication are those of docs/json.md.
#[test]
fn a_publication_is_described() {
    let publish = Publish { dtype: Width::BF16, copies: 2 };
    let hardware = Hardware::parse(GPU).expect("a GPU");
    PlanBuf::new("T", Config { publish, ..config(3, Mesh::of_zero(2)) }, &units(2)).with(|plan| {
        let prediction = Prediction::of(plan, &hardware, None).expect("a plan for this hardware");
        assert!(prediction.publication.is_some());
        crate::documented::assert_documented(&serde_json::to_value(&prediction).expect("figures"));
    });
}

/// Each rank reads 16384 bytes and writes 8192; a reader takes 16384 bytes, and copies them.
#[test]
fn a_publication_takes_its_bytes_by_rates() {
    let slow = |text: String| text.replace("bandwidth: 1e18", "bandwidth: 1e9");
    let found = published(&slow(cpu(2)), config(3, Mesh::of_zero(2)));
    assert_eq!((found.version_bytes, found.rank_bytes, found.to_host_s), (16384, 8192, None));
    assert_us(found.pause_s, 24.576);
    assert_us(found.reader_pause_s, 32.768);
    // By 4 links of 0.1 GB/s, each reader has those of its own, and the host of both ranks sends six times as much.
    assert_us(found.read_s.expect("a network"), 1040.96);
    assert_us(found.read_by_six_s.expect("a network"), 1245.76);
    let apart = config(3, Mesh { nodes: 2, ..Mesh::of_zero(2) });
    let apart = published(&slow(cpu(2)), Config { transport: TransportKind::Cluster, ..apart });
    assert_us(apart.read_by_six_s.expect("a network"), 1122.88);
    let alone = slow(cpu(2)).replace(", network: (bandwidth: 1e8, latency: 1e-3, links: 4)", "");
    assert_eq!(published(&alone, config(3, Mesh::of_zero(2))).read_s, None);
}

#[test]
fn a_device_takes_its_copy_to_the_host_afterwards() {
    let with_link = GPU.replace("devices: 8,", "devices: 8, memory: GB(80), host_link: (read: 1e8, write: 2e8),");
    let on_gpus = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..config(3, Mesh::of_zero(2)) };
    let found = published(&with_link.replace("bandwidth: 1e18", "bandwidth: 1e9"), on_gpus);
    assert_us(found.pause_s, 24.576);
    assert_us(found.to_host_s.expect("a link to the host"), 40.96);
    let text = found.to_string();
    assert!(text.contains("24.6 us while a rank copies up to 8.0 KiB of 16.0 KiB\n      41.0 us later"), "{text}");
}
