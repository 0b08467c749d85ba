_kubectl_di() {
    local IFS=$'\n' words=("${COMP_WORDS[@]:0:COMP_CWORD + 1}")
    # Bash splits words at = and :. If the line ends with one of them, it is the last word.
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
