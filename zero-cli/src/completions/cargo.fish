
# For `cargo zero`, fish uses the completions of cargo, to which this adds those of `zero`. This file belongs in
# ~/.config/fish/conf.d/, because a file in completions/ is read only for the command that it is named after.
function __fish_cargo_zero_of_cargo
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    complete -C (string join ' ' -- zero (string escape -- $words[3..]) "$current")
end
complete -c cargo -n 'test (count (commandline -opc)) -ge 2; and test (commandline -opc)[2] = zero' -f -a '(__fish_cargo_zero_of_cargo)'
