//! Machine: where and when a measurement was made, for the header of its tables. Never decides anything.

use std::process::Command;

use zero_cpu::Bf16Products;

/// A few lines: date, processor, kernel, compiler, our version.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let lines = [
        ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
        ("processor", Some(format!("{}, {cores} cores, {}", processor(), simd()))),
        ("bf16", Some(bf16())),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("load before", read("/proc/loadavg").and_then(|load| Some(load.split_whitespace().next()?.to_owned()))),
        ("compiler", said("rustc", &["--version"])),
        ("ours", Some(format!("zero {}", env!("CARGO_PKG_VERSION")))),
    ];
    let known = lines.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}\n", value?)));
    known.collect()
}

/// The output of a command; none if it is missing or fails.
fn said(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn processor() -> String {
    let table = read("/proc/cpuinfo").unwrap_or_default();
    first(&table, "model name").unwrap_or(std::env::consts::ARCH).to_owned()
}

/// The processor's flags for bf16, and the instructions of our products.
fn bf16() -> String {
    let table = read("/proc/cpuinfo").unwrap_or_default();
    let flags = bf16_flags(&table).join(" ");
    let flags = if flags.is_empty() { "no flags" } else { &flags };
    format!("{flags}; our products: {}", Bf16Products::chosen().name())
}

/// The value of a key for the first processor of `/proc/cpuinfo`.
fn first<'a>(table: &'a str, key: &str) -> Option<&'a str> {
    let (_, value) = table.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key)?;
    Some(value.trim())
}

fn bf16_flags(table: &str) -> Vec<&str> {
    let flags = first(table, "flags").or_else(|| first(table, "Features")).unwrap_or_default();
    flags.split_whitespace().filter(|flag| flag.contains("bf16") || flag.starts_with("amx")).collect()
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
    fn the_first_processor_has_a_name_and_flags() {
        let table = "processor\t: 0\nmodel name\t: A 1 @ 2: x\nflags\t\t: fma amx_tile avx512_bf16\nmodel name\t: B\n";
        assert_eq!(first(table, "model name"), Some("A 1 @ 2: x"));
        assert_eq!(bf16_flags(table), ["amx_tile", "avx512_bf16"]);
        assert_eq!(first("processor\t: 0\n", "model name"), None);
        assert!(bf16_flags("").is_empty());
    }
}
