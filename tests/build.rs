//! Build: turns the models of `examples/` into modules, in the sizes that `tests/training/models/` asks for, so that tests
//! compile the sources that users read and run. Changes only the size and the spec of a model.

use std::path::Path;

/// Example, name of its struct, sizes that are trained, and published sizes that are only planned.
const MODELS: &[(&str, &str, &[&str], &[&str])] = &[
    ("gpt2", "Gpt2", &["tiny"], &["124M", "1.5B"]),
    ("llama", "Llama", &["tiny", "tiny-tied"], &["3.2-1B", "3.1-8B", "3.1-70B", "13B"]),
    ("qwen3", "Qwen3", &["tiny", "tiny-untied"], &["0.6B", "4B", "8B"]),
    ("olmo3", "Olmo3", &["tiny"], &["7B"]),
];

/// The options that tiny models are compiled with.
const TRAINED: &str = "stage = 3, ranks = 2, sequences = 2, length = 31";

/// The options that published sizes are planned with: the memory case of the documentation.
const PLANNED: &str = "stage = 3, ranks = 2, sequences = 1, length = 1024, compute = BF16";

fn main() {
    let mut all = String::new();
    for (example, name, trained, planned) in MODELS {
        let path = format!("../examples/{example}/src/main.rs");
        println!("cargo::rerun-if-changed={path}");
        let source = std::fs::read_to_string(&path).expect("an example");
        for size in *trained {
            all += &module(&source, example, name, size, TRAINED, "");
            all += &module(&source, example, name, size, &format!("{TRAINED}, compute = BF16"), "_bf16");
        }
        for size in *planned {
            all += &module(&source, example, name, size, PLANNED, "");
        }
    }
    let out = std::env::var_os("OUT_DIR").expect("a directory for what is built");
    std::fs::write(Path::new(&out).join("models.rs"), all).expect("a writable directory");
}

/// A module `qwen3_tiny` whose model is `Model`.
fn module(source: &str, example: &str, name: &str, size: &str, options: &str, suffix: &str) -> String {
    let replaced = |source: String, what: &str, with: &str| {
        assert_eq!(source.matches(what).count(), 1, "`{what}` in {example}");
        source.replace(what, with)
    };
    let body: String = source.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
    let body = replaced(body, "option_env!(\"ZERO_SIZE\")", &format!("Some(\"{size}\")"));
    let body = replaced(body, &format!("spec = \"../../specs/{example}.ron\""), options);
    let body = replaced(body, &format!("\nstruct {name} {{"), &format!("\npub struct {name} {{"));
    let module = format!("{example}_{size}{suffix}").replace(['-', '.'], "_");
    format!("#[allow(dead_code)]\npub mod {module} {{\n{body}\npub use {name} as Model;\n}}\n")
}
