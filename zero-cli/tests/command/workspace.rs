//! Workspace: a cargo workspace with a small program in place of a model, and a script in place of cargo that compiles it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A workspace with the package `model`, which has two binaries. Its path has a blank.
pub struct Workspace {
    _directory: tempfile::TempDir,
    pub root: PathBuf,
}

/// Makes a program that says no sizes say those of a model of one unit, as the command asks for them after each build. The name of
/// the model has the size that was asked for.
const SIZES: &str = r##"
fn main() {
    if std::env::args().nth(1).as_deref() != Some("--sizes") {
        return given();
    }
    let spec = format!("{:?}", include_str!(env!("ZERO_SPEC")));
    let size = [option_env!("ZERO_SIZE"), option_env!("ZERO_PARTS")].iter().flatten();
    let size: String = size.map(|part| format!(" {part}")).collect();
    print!(r#"{{"model":"Tiny{size}","spec":{spec},"probes":[{{"compute":"F32","sequences":1,"length":1,"units":["#);
    print!(r#"{{"field":"only","position":0,"index":null,"params":8,"takes":8,"source":0,"saved_bytes":64,"#);
    print!(r#""workspace_bytes":0,"input_bytes":64,"output_bytes":64,"operations":1,"attending":0,"given_bytes":0,"#);
    print!(r#""targets_bytes":64,"cache_bytes":0}}]}}]}}"#);
}
"##;

impl Workspace {
    /// With `program` as the source of all binaries.
    pub fn new(program: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().canonicalize().expect("a directory").join("a workspace");
        let workspace = Self { _directory: directory, root };
        fs::create_dir_all(workspace.root.join("target/release")).expect("a directory");
        let target = |name: &str| format!(r#"{{"kind":["bin"],"crate_types":["bin"],"name":"{name}"}}"#);
        let metadata = format!(
            r#"{{"packages":[{{"id":"model","name":"model","targets":[{},{}]}},{{"name":"zero-cuda","manifest_path":"cuda"}}],"workspace_root":{:?},"target_directory":{:?}}}"#,
            target("model"),
            target("other"),
            workspace.root,
            workspace.root.join("target"),
        );
        workspace.write("metadata.json", &metadata);
        let has_sizes = program.contains("--sizes");
        let program = if has_sizes { program.into() } else { program.replace("fn main()", "fn given()") + SIZES };
        workspace.write("program.rs", &program);
        workspace.write("Cargo.toml", "[workspace]\n");
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cargo.sh"), workspace.root.join("cargo"))
            .expect("a script");
        workspace
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, content).expect("a file");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).expect("a file")
    }

    /// A spec that can be told from others.
    pub fn spec(&self, name: &str) -> &Self {
        self.write(name, &format!("(model: Package(\"model\"), zero: (stage: 1)) // {name}\n"));
        self
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
        command.args(line.split(' ')).current_dir(&self.root).env("CARGO", self.root.join("cargo"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn said(&self, line: &str) -> String {
        said(self.command(line).output().expect("the command"))
    }

    /// Builds a spec, and gives the path of its binary.
    pub fn built(&self, line: &str) -> PathBuf {
        PathBuf::from(self.said(&format!("build {line}")).trim_end())
    }
}

/// What a command that succeeds says on standard output.
pub fn said(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
