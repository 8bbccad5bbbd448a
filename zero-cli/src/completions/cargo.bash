
# To complete `cargo zero`, bash calls the completion function of cargo. This one completes `zero`, and leaves all other
# commands to the function that completed cargo before. So ~/.bashrc must source this file after any other completion of
# cargo.
_cargo_zero_of_cargo() {
    local at=1
    while ((at < COMP_CWORD)) && [[ "${COMP_WORDS[at]}" == [+-]* ]]; do
        at=$((at + 1))
    done
    if ((at < COMP_CWORD)) && [[ "${COMP_WORDS[at]}" == zero ]]; then
        COMP_WORDS=("${COMP_WORDS[@]:at}")
        COMP_CWORD=$((COMP_CWORD - at))
        _zero zero "$2" "$3"
    elif [[ -n "${_cargo_zero_others:-}" ]]; then
        "$_cargo_zero_others" "$@"
    fi
}

# The package bash-completion loads its completion of cargo only when it is first needed.
if ! complete -p cargo &>/dev/null; then
    if declare -F _comp_load >/dev/null; then
        _comp_load cargo &>/dev/null || true
    elif declare -F _completion_loader >/dev/null; then
        _completion_loader cargo &>/dev/null || true
    fi
fi
if [[ "$(complete -p cargo 2>/dev/null)" =~ " -F "([^ ]+) && "${BASH_REMATCH[1]}" != _cargo_zero_of_cargo ]]; then
    _cargo_zero_others="${BASH_REMATCH[1]}"
fi
complete -F _cargo_zero_of_cargo -o bashdefault -o default cargo
