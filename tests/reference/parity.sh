#!/usr/bin/env bash
# Compares Fettle with other libraries on this machine. FETTLE is the path of the program (default: build/fettle).
# usage: parity.sh                                    all parts
#        parity.sh short                              two families, the trackers except MLflow, and the server
#        parity.sh trackers                           TensorBoard, W&B, trackio, MLflow
#        parity.sh server                             `fettle serve` with the openai client
#        parity.sh gguf                               exported GGUF files in llama.cpp and the gguf library
#        parity.sh float8                             weights exported in 8 and 4 bits, in Transformers
#        parity.sh tokenizers                         real and random tokenizers: tokenizers, sentencepiece, tiktoken
#        parity.sh templates                          real chat templates: Jinja2 as Transformers sets it up
#        parity.sh hub                                the cache of huggingface_hub
#        parity.sh classifiers                        classifiers in Transformers and PEFT
#        parity.sh models [FAMILY ...] [options]      Transformers + PEFT, see parity.py
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${FETTLE:-$here/../../build/fettle}
python=$("$here/python_env.sh")
what=${1:-all}
shift $(($# > 0))
failed=0
if [[ $what == short ]]; then
  "$here/trackers.sh" "$program" || failed=1
fi
if [[ $what == all || $what == trackers ]]; then
  "$here/trackers.sh" "$program" --mlflow || failed=1
fi
if [[ $what == all || $what == short || $what == server ]]; then
  "$here/openai_client.sh" "$program" || failed=1
fi
if [[ $what == all || $what == gguf ]]; then
  "$here/llama_cpp.sh" "$program" || failed=1
fi
if [[ $what == all || $what == float8 ]]; then
  "$here/float8_export.sh" "$program" || failed=1
fi
if [[ $what == short ]]; then
  what=models
  set -- llama gpt2
fi
if [[ $what == all || $what == tokenizers ]]; then
  "$python" "$here/tokenizer/compare.py" "$program" || failed=1
  "$python" "$here/tokenizer/random_configs.py" "$program" --count 200 --seconds 150 || failed=1
fi
if [[ $what == all || $what == templates ]]; then
  "$python" "$here/data/compare_templates.py" "$program" || failed=1
  "$python" "$here/data/compare_turns.py" "$program" || failed=1
fi
if [[ $what == all || $what == hub ]]; then
  "$python" "$here/hub.py" "$program" || failed=1
fi
if [[ $what == all || $what == classifiers ]]; then
  "$python" "$here/classifiers_live.py" "$program" || failed=1
fi
if [[ $what == all || $what == models ]]; then
  "$python" "$here/parity.py" --fettle "$program" "$@" || failed=1
fi
exit $failed
