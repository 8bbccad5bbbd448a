
# This belongs in a folder of $fpath, as the file `_zero`. For `cargo zero`, zsh uses the completion of cargo.
# Rust's own, the file `_cargo`, calls the function in this file.
