#!/usr/bin/env bash
# Tests the Fettle that is installed in PREFIX: libraries, a Parquet file, training, a reply, completion, man page.
# packaging/test.sh copies this script, the example and a Parquet file into one folder and runs it there.
# Usage: use.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")"
prefix=$1
PATH=$prefix/bin:$PATH
fail() {
  echo "use.sh: $*" >&2
  exit 1
}

for file in fettle fettle_columns.so; do
  others=$(ldd "$prefix/lib/fettle/$file" | grep -v "$prefix/lib/fettle/lib/" |
    grep -Ev '(lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so|ld-linux|linux-vdso)' || true)
  # The .deb (prefix /usr) uses libraries from Debian's packages, so there only a missing library is an error.
  if [[ $prefix != /usr || $others == *"not found"* ]] && [[ -n $others ]]; then
    fail "$file needs libraries of this system:"$'\n'"$others"
  fi
done
fettle --version
[[ $(fettle devices) == *$prefix/lib/fettle/plugins/cpu/* ]] || fail "another plugin was found: $(fettle devices)"
fettle data model_name_or_path=base.gguf dataset=rows.parquet >rows.txt 2>&1 || { cat rows.txt && fail "Parquet is not read"; }

fettle train tune.yaml model_name_or_path=base.gguf dataset=sample/train.jsonl eval_dataset=sample/eval.jsonl max_steps=40 \
  output_dir=out >train.txt 2>&1 || { cat train.txt && fail "train"; }
[[ -s out/adapter_model.safetensors ]] || fail "train wrote no adapter"
awk -F'"loss":' '/"loss"/ { split($2, v, /[,}]/); last = v[1]; if (!first) first = last }
  END { print "loss " first " -> " last; exit !(last < 0.7 * first) }' out/trainer_log.jsonl || fail "the loss did not fall"
! grep -i fontconfig train.txt || fail "plots lack fonts"
[[ -n $(fettle generate tune.yaml model_name_or_path=base.gguf adapter_name_or_path=out prompt="What is sed?") ]] || fail "generate"

[[ $(fettle complete tra) == train$'\t'* ]] || fail "fettle complete"
for file in man/man1/fettle.1* bash-completion/completions/fettle zsh/*/_fettle fish/vendor_completions.d/fettle.fish; do
  compgen -G "$prefix/share/$file" >/dev/null || fail "$prefix/share/$file is missing"
done
echo "it works in $prefix"
