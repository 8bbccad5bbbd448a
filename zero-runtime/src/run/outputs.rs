//! Outputs: compares the paths that a run is to write to, and tries those that it would otherwise need only at its end. Leaves
//! nothing there.

use std::path::{Path, PathBuf};

use super::arguments::RunArguments;
use super::weights::WeightFolders;
use crate::error::Error;
use zero_files::checkpoint::Store;

/// Tries all outputs before the first step, while there is nothing to lose. Those of `--checkpoint`, `--metrics` and `--profile` are
/// tried by the rank that makes them, before its first step too.
///
/// # Errors
/// Z0350 if one is in the way of another, Z0368 if the folder of `--export` cannot be made.
pub fn try_outputs(arguments: &RunArguments, weights: &WeightFolders) -> Result<(), Error> {
    require_apart(arguments)?;
    weights.try_export()
}

/// Refuses outputs that are in the way of one another.
fn require_apart(arguments: &RunArguments) -> Result<(), Error> {
    let place = |path: &Option<PathBuf>| path.as_deref().map(place);
    let [checkpoint, export, metrics, profile] =
        [&arguments.checkpoints.checkpoint, &arguments.export, &arguments.metrics, &arguments.profile].map(place);
    let named =
        [("--checkpoint", &checkpoint), ("--export", &export), ("--metrics", &metrics), ("--profile", &profile)];
    let outputs: Vec<(&str, &Path)> =
        named.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?))).collect();
    let refused = |what: String| Err(Error::Argument { what, help: "name another path".to_owned() });
    for (i, &(name, path)) in outputs.iter().enumerate() {
        if let Some((other, _)) = outputs[i + 1..].iter().find(|(_, other)| *other == path) {
            return refused(format!("{name} and {other} name the same path, `{}`", path.display()));
        }
        if export.as_deref().is_some_and(|export| path != export && path.starts_with(export)) {
            return refused(format!(
                "{name} names a path in the folder of --export, which must be empty until the end"
            ));
        }
        let is_inside =
            |folder: &PathBuf| path.parent() == Some(folder) && path.file_name().is_some_and(Store::is_own_name);
        if checkpoint.as_ref().is_some_and(is_inside) {
            return refused(format!("{name} names a path that --checkpoint uses, `{}`", path.display()));
        }
    }
    Ok(())
}

/// A path without links, as far as it exists.
fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, real)) = known else { return path };
    path.strip_prefix(ancestor).map_or_else(|_| real.clone(), |rest| real.join(rest))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn z0350_no_output_is_in_the_way_of_another() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("there")).unwrap();
        std::os::unix::fs::symlink("there", root.path().join("link")).unwrap();
        let told = |line: &str| {
            let words = line.split(' ').map(|word| match word.starts_with('-') {
                true => word.to_owned(),
                false => root.path().join(word).display().to_string(),
            });
            let arguments = Command::parse_from([String::new()].into_iter().chain(words)).run;
            require_apart(&arguments).map_err(|error| error.to_string())
        };
        for (line, words) in [
            ("--export x --metrics x", "--export and --metrics name the same path"),
            ("--checkpoint x --export ./x", "--checkpoint and --export name the same path"),
            ("--checkpoint there --profile link", "--checkpoint and --profile name the same path"),
            ("--metrics x --profile x", "--metrics and --profile name the same path"),
            ("--export there --metrics link/m", "--metrics names a path in the folder of --export"),
            ("--export x --checkpoint x/y/z", "--checkpoint names a path in the folder of --export"),
            ("--checkpoint x --export x/step-000000003", "--export names a path that --checkpoint uses"),
            ("--checkpoint link --metrics there/lock", "--metrics names a path that --checkpoint uses"),
        ] {
            let error = told(line).expect_err(line);
            assert!(error.starts_with(&format!("error[Z0350]: {words}")), "{line}: {error}");
        }
        for line in [
            "--checkpoint x --export y --metrics z --profile w",
            "--checkpoint x --metrics x/metrics.jsonl --export x/weights",
            "--checkpoint x/y --export x/z --metrics xy",
        ] {
            assert_eq!(told(line), Ok(()), "{line}");
        }
    }
}
