_kubectl_di() {
    local IFS=$'\n' words=("${COMP_WORDS[@]:0:COMP_CWORD + 1}")
    # Bash takes words apart at = and :. Where nothing stands behind them yet, they are the word.
    if ((BASH_VERSINFO[0] >= 4)) && [[ ! ${words[COMP_CWORD]} =~ ^[=:]+$ ]]; then
        words[COMP_CWORD]=$2
    fi
    COMPREPLY=($(KUBECTL_DI_COMPLETE=bash kubectl-di -- "${words[@]}"))
    if [[ ${COMPREPLY-} =~ [=/]$ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o nosort -F _kubectl_di kubectl-di 2>/dev/null ||
    complete -o bashdefault -F _kubectl_di kubectl-di
