
# For `cargo zero`, fish asks what completes cargo: what completes `cargo-zero`. This lies in ~/.config/fish/conf.d/, as what lies
# in completions/ is read only for the command that it is named after.
function __fish_cargo_zero_of_cargo
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    complete -C (string join ' ' -- cargo-zero (string escape -- $words[3..]) "$current")
end
complete -c cargo -n 'test (count (commandline -opc)) -ge 2; and test (commandline -opc)[2] = zero' -f -a '(__fish_cargo_zero_of_cargo)'
