# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# awk -v table=TABLE -f check-includes.awk TABLE SOURCE…: see tests/check-includes.

function resolve(name, from,    place, i) {
  place = from
  sub(/[^\/]*$/, "", place)
  if ((place name) in known) return place name
  for (i = 1; i <= places; i++) if ((search[i] name) in known) return search[i] name
  return ""
}

# has[of, HEADER]: what `file` names, and what the headers of the tree name that it includes
function reach(file, of,    i, parts, n, to) {
  if ((of, file) in been) return
  been[of, file] = 1
  n = split(standard[file], parts, " ")
  for (i = 1; i <= n; i++) has[of, parts[i]] = 1
  n = split(own[file], parts, " ")
  for (i = 1; i <= n; i++) if ((to = resolve(parts[i], file)) != "") reach(to, of)
}

function satisfied(file, headers,    i, parts, n) {
  n = split(headers, parts, "|")
  for (i = 1; i <= n; i++) if ((file, parts[i]) in has) return 1
  return 0
}

function use(name) {
  if ((FILENAME, name) in used) return
  used[FILENAME, name] = FNR
  wanted[++wants] = FILENAME SUBSEP name
}

function between(line, opening, closing) {
  sub("^[^" opening "]*" opening, "", line)
  sub(closing ".*", "", line)
  return line
}

BEGIN {
  places = split("src/ include/ tests/ benchmarks/ mpix/", search, " ")
  search[++places] = ""  # from the top
}

FILENAME == table {
  if (/^#/) next
  headers = $0
  sub(/:.*/, "", headers)
  kind = sub(/^call /, "", headers) ? "call " : ""
  names = $0
  sub(/^[^:]*: /, "", names)
  count = split(names, words, " ")
  for (i = 1; i <= count; i++) declares[kind words[i]] = headers
  next
}

FNR == 1 { known[FILENAME] = 1; comment = 0 }
/^#[ \t]*include[ \t]*</ {
  standard[FILENAME] = standard[FILENAME] " " between($0, "<", ">")
  own[FILENAME] = own[FILENAME] " " between($0, "<", ">")  # mpix.h and mpix.hpp, as programs include them
  next
}
/^#[ \t]*include[ \t]*"/ { own[FILENAME] = own[FILENAME] " " between($0, "\"", "\""); next }
{
  line = $0
  gsub(/\\./, "", line)
  gsub(/"[^"]*"/, "", line)
  if (comment && !sub(/^.*\*\//, "", line)) next
  comment = 0
  sub(/\/\/.*/, "", line)
  while (match(line, /\/\*/)) {
    rest = substr(line, RSTART + 2)
    line = substr(line, 1, RSTART - 1)
    if (!(at = index(rest, "*/"))) { comment = 1; break }
    line = line " " substr(rest, at + 2)
  }
  for (rest = line; match(rest, /std::[A-Za-z_0-9]+/); rest = substr(rest, RSTART + RLENGTH))
    use(substr(rest, RSTART, RLENGTH))
  for (rest = " " line; match(rest, /[A-Za-z_0-9]+\(/); rest = substr(rest, RSTART + RLENGTH)) {
    name = "call " substr(rest, RSTART, RLENGTH - 1)
    before = substr(rest, 1, RSTART - 1)
    # not a member, not of another scope, and not a declaration: a word stands in front of that
    if (name in declares && (before !~ /(\.|->|[A-Za-z_0-9>]::|[A-Za-z_0-9>&*] )$/ || before ~ /(return|else) $/))
      use(name)
  }
}

END {
  for (i = 1; i <= wants; i++) {
    split(wanted[i], pair, SUBSEP)
    file = pair[1]
    name = pair[2]
    reach(file, file)
    shown = name
    sub(/^call /, "", shown)
    where = file ":" used[file, name] ": "
    if (!(name in declares)) {
      print where "which header has " shown "? (tests/include-names)"
      bad = 1
    } else if (!satisfied(file, declares[name])) {
      headers = declares[name]
      gsub(/\|/, "> or <", headers)
      print where shown " without <" headers ">"
      bad = 1
    }
  }
  exit bad
}
