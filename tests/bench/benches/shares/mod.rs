//! Shares: what the micro-benchmarks measured, beside the time that their bytes or operations need on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

/// The group that measures the rates of this machine, and what is in it.
pub const MACHINE: &str = "machine";
/// A large matrix product: counts operations.
pub const PRODUCT: &str = "product";
/// A copy: counts the bytes that are read and written.
pub const COPY: &str = "copy";

/// A measured kernel.
struct Kernel {
    group: String,
    name: String,
    ns: f64,
    /// Operations, or bytes.
    amount: f64,
    counts_bytes: bool,
    at: SystemTime,
}

/// Prints a table of the kernels whose results in `folder` are newer than `since`, in the order in which they ran. Says
/// nothing if the rates of the machine were not measured.
pub fn print(folder: &Path, since: SystemTime) {
    let mut kernels: Vec<Kernel> = results(folder).iter().filter_map(|path| read(path)).collect();
    kernels.retain(|kernel| kernel.at >= since);
    kernels.sort_by_key(|kernel| kernel.at);
    let rate_per_ns = |name: &str| {
        let kernel = kernels.iter().find(|kernel| kernel.group == MACHINE && kernel.name == name)?;
        Some(kernel.amount / kernel.ns)
    };
    let (Some(product), Some(copy)) = (rate_per_ns(PRODUCT), rate_per_ns(COPY)) else { return };
    println!("\na product: {product:.0} GFLOP/s; a copy: {copy:.1} GB/s\n");
    println!("| kernel | us | needs, us | for its | needs / takes, % |\n|---|---|---|---|---|");
    for Kernel { group, name, ns, amount, counts_bytes, .. } in kernels.iter().filter(|kernel| kernel.group != MACHINE)
    {
        let (needs_ns, of) = if *counts_bytes { (amount / copy, "bytes") } else { (amount / product, "operations") };
        println!("| {group}, {name} | {:.1} | {:.1} | {of} | {:.0} |", ns / 1e3, needs_ns / 1e3, 100.0 * needs_ns / ns);
    }
}

/// The folders of the last results of all benchmarks.
fn results(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = entries.filter(|path| path.is_dir());
    folders.flat_map(|path| if path.ends_with("new") { vec![path] } else { results(&path) }).collect()
}

fn read(folder: &Path) -> Option<Kernel> {
    let file = |name: &str| -> Option<Value> { serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok() };
    let (kernel, estimates) = (file("benchmark.json")?, file("estimates.json")?);
    let (counts, amount) = kernel["throughput"].as_object()?.iter().next()?;
    Some(Kernel {
        group: kernel["group_id"].as_str()?.to_owned(),
        name: kernel["function_id"].as_str()?.to_owned(),
        ns: estimates["median"]["point_estimate"].as_f64()?,
        amount: amount.as_f64()?,
        counts_bytes: counts == "Bytes",
        at: fs::metadata(folder.join("estimates.json")).ok()?.modified().ok()?,
    })
}
