//! Machine: where and when a measurement was made, for the header of its tables. Never decides anything.

use std::process::Command;

/// A few lines: date, processor, kernel, compiler, version of ours.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lines = [
        ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("processor", Some(format!("{}, {cores} cores, {}", processor(), simd()))),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("load before", read("/proc/loadavg").and_then(|load| Some(load.split_whitespace().next()?.to_owned()))),
        ("compiler", said("rustc", &["--version"])),
        ("ours", Some(format!("zero {}, one thread a rank", env!("CARGO_PKG_VERSION")))),
    ];
    let known = lines.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}\n", value?)));
    known.collect()
}

/// What a command says; nothing where it is not there or fails.
fn said(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn processor() -> String {
    let model = read("/proc/cpuinfo").and_then(|table| model_name(&table).map(str::to_owned));
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The name of the first processor of `/proc/cpuinfo`.
fn model_name(table: &str) -> Option<&str> {
    let line = table.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// The widest vectors that kernels can use here.
#[cfg(target_arch = "x86_64")]
fn simd() -> &'static str {
    if is_x86_feature_detected!("avx512f") {
        "avx512f"
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        "avx2 and fma"
    } else {
        "neither avx512f nor avx2"
    }
}

/// The widest vectors that kernels can use here.
#[cfg(not(target_arch = "x86_64"))]
fn simd() -> &'static str {
    std::env::consts::ARCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_has_a_name() {
        assert_eq!(model_name("processor\t: 0\nmodel name\t: A 1 @ 2: x\nmodel name\t: B\n"), Some("A 1 @ 2: x"));
        assert_eq!(model_name("processor\t: 0\n"), None);
    }
}
