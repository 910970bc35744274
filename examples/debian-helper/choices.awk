# Writes questions with four choices about the sections of held-out packages: one {"question", "choices", "answer"} per
# line, preceded by a number to sort by. Reads the records twice; the first pass gathers the sections.

pass == 1 {
  if (!($2 in seen)) sections[count++] = $2
  seen[$2] = 1
  next
}
!held_out($1) || count < 4 { next }
{
  place = hash($1, "place") % 4
  split("", taken)
  taken[$2] = 1
  choices = ""
  for (i = 0; i < 4; i++) {
    section = $2
    if (i != place) {
      at = hash($1, "choice " i) % count
      while (sections[at] in taken) at = (at + 1) % count
      section = sections[at]
      taken[section] = 1
    }
    choices = choices (i ? ", " : "") json($1 " belongs to the section " section ".")
  }
  print hash($1, "order") "\t{\"question\": " json("Which section does the package " $1 " (" $3 ") belong to?") \
    ", \"choices\": [" choices "], \"answer\": " place "}"
}
