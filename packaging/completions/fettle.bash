# Completion of fettle's command line for bash. `fettle complete` lists the candidates.
_fettle() {
  local -a words command=("$1") alias
  # The first word may be an alias for the program, such as fettle='~/fettle/build/fettle -q'. Another program, such as
  # sudo, must not run here.
  read -ra alias <<<"${BASH_ALIASES["$1"]:-}"
  [[ ${alias[0]+${alias[0]##*/}} != fettle ]] || command=("${alias[@]}")
  [[ ${command[0]} != '~/'* ]] || command[0]=$HOME/${command[0]#'~/'}
  local line=${COMP_LINE:0:COMP_POINT} candidate meaning file
  read -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=('')
  local word=${words[-1]}
  local kept=${word%"${word##*[=:]}"} # bash replaces only what follows the last = or :
  COMPREPLY=()
  while IFS=$'\t' read -r candidate meaning; do
    if [[ $candidate != :files ]]; then
      COMPREPLY+=("${candidate#"$kept"}")
      continue
    fi
    while read -r file; do
      [[ ! -d $file ]] || file+=/
      COMPREPLY+=("$(printf %q "$file")")
    done < <(compgen -f -- "${word#*=}")
  done < <("${command[0]}" complete "${command[@]:1}" "${words[@]:1}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[=/] ]] || compopt -o nospace
}
complete -F _fettle fettle
