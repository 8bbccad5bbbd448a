
# This lies in a folder of $fpath, as the file `_cargo-zero`. For `cargo zero`, zsh asks what completes cargo. That of Rust, the
# file `_cargo`, calls the function that this is.
