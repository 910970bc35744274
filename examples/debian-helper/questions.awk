# Writes questions and answers about the held-out packages (want = "eval") or about the others ("train"): one
# {"messages": [...]} per line, with a number to sort by in front. Each package gives at most one row. All facts of an
# answer are in its question, except the section, which the model has to find out from the name and the summary.

function row(question, answer) {
  print hash($1, "order") "\t{\"messages\": [{\"role\": \"user\", \"content\": " json(question) \
    "}, {\"role\": \"assistant\", \"content\": " json(answer) "}]}"
}

(held_out($1) ? "eval" : "train") != want { next }
length($1) > 32 || length($3) < 12 || length($3) > 70 { next }
{
  kind = hash($1, "kind") % 3
  if (kind == 0) {
    row("Which section of Debian has " $1 " (" $3 ")?", $1 " is in the section " $2 ".")
  } else if (kind == 1 && $6 ~ / / && length($6) <= 70) {
    row("What does " $1 " need? Depends: " replaced($6, " ", ", "), \
      $1 " needs " listed($6) ". apt installs what is missing.")
  } else {
    row("Introduce the Debian package " $1 ": " $3 ".", \
      "Meet " $1 ", a package of the section " $2 ": " $3 ". Install it with `sudo apt install " $1 "`.")
  }
}
