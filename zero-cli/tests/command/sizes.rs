//! Sizes: each command that builds from a spec builds its model in the size that the spec gives; a command line gives the size of a
//! spec that gives none, and cannot change another's.

use crate::workspace::{Workspace, said};

/// Prints the size that it was built in.
const PROGRAM: &str = r#"
fn main() {
    println!("{:?} {:?}", option_env!("ZERO_SIZE"), option_env!("ZERO_PARTS"));
}
"#;

fn workspace() -> Workspace {
    let workspace = Workspace::new(PROGRAM);
    let spec = |model: &str| format!("(model: Package(\"model\"{model}), mesh: (zero: 1), zero: (stage: 1))\n");
    workspace.write("sized.ron", &spec(", size: \"8B\", layers: 3"));
    workspace.write("plain.ron", &spec(""));
    workspace
}

#[test]
fn every_command_builds_the_size_of_the_spec() {
    let workspace = workspace();
    let built = "Some(\"8B\") Some(\"layers=3\")\n";
    for verb in ["run", "sample", "evaluate"] {
        assert_eq!(workspace.said(&format!("{verb} sized.ron")), built, "{verb}");
    }
    assert_eq!(workspace.said("plan sized.ron"), format!("size: 8B, with layers 3\n{built}"));
    // The program reports its size as a part of its name.
    for line in ["plan sized.ron --json", "simulate sized.ron --on cpu-8", "expand sized.ron"] {
        let text = workspace.said(line);
        assert!(text.contains("Tiny 8B layers=3"), "{line}: {text}");
    }
    let diff = workspace.command("diff plain.ron sized.ron").output().expect("the command");
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    let model = "Package(\"model\", size: \"8B\", layers: 3)";
    assert!(diff.status.code() == Some(1) && text.contains(model), "{text}");
}

#[test]
fn a_spec_without_a_size_is_built_in_the_size_that_is_asked_for() {
    let workspace = workspace();
    // The variable is for builds by cargo itself: a plan has the size that its command says.
    let output = workspace.command("run plain.ron").env("ZERO_SIZE", "70B").output().expect("the command");
    assert_eq!(said(output), "None None\n");
    let asked = "Some(\"8B\") Some(\"width=64,key_heads=2\")\n";
    assert_eq!(workspace.said("run plain.ron --size 8B --key-heads 2 --width 64"), asked);
    assert_eq!(workspace.said("run sized.ron --size 8B --layers 3"), "Some(\"8B\") Some(\"layers=3\")\n");
}

#[test]
fn z0137_a_size_that_is_not_that_of_the_spec() {
    let workspace = workspace();
    for asked in ["--size 70B", "--layers 4", "--key-heads 2"] {
        for verb in ["run", "plan", "build", "expand", "measure"] {
            let output = workspace.command(&format!("{verb} sized.ron {asked}")).output().expect("the command");
            let expected = format!(
                "error[Z0137]: `{asked}` was given, but sized.ron has `model: Package(\"model\", size: \"8B\", layers: 3)`\n  \
                 = help: leave `{asked}` out, or change the size in the spec\n"
            );
            assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), &*expected));
        }
    }
}
