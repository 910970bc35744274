#compdef fettle
# Completion of fettle's command line for zsh. `fettle complete` lists the candidates.
local line candidate meaning files
local -a plain open
while IFS=$'\t' read -r candidate meaning; do
  case $candidate in
    :files) files=1 ;;
    *=) open+=("${candidate//:/\\:}:$meaning") ;;
    *) plain+=("${candidate//:/\\:}:$meaning") ;;
  esac
done < <("${words[1]}" complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)
_describe -t values fettle plain -- open -S ''
if [[ -n $files ]]; then
  compset -P '*='
  _files
fi
