# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the libmpix authors
#
# Draws what `overlap --csv=FILE` wrote, as Figs 7 and 8 of the dCUDA paper: a column for each kind of work, a row for
# each number of ranks on a multiprocessor.
#
#   gnuplot -e "csv='overlap.csv'; picture='overlap.svg'" overlap.gnuplot     (or a .png)

if (!exists("csv")) csv = "overlap.csv"
if (!exists("picture")) picture = "overlap.svg"

distinct(which) = system(sprintf("awk -F, -v n=%d 'NR > 1 && !seen[$n]++ { printf \"%%s \", $n }' '%s'", which, csv))
kinds = distinct(1)
each_of = distinct(2)
if (words(kinds) == 0) { print csv, ": no figures"; exit status 1 }

wide = 560 * words(kinds)
high = 420 * words(each_of)
is_png = strlen(picture) > 4 && picture[strlen(picture) - 3:] eq ".png"
if (is_png) { set terminal png size wide, high }
if (!is_png) { set terminal svg size wide, high dynamic background rgb "white" }
set output picture

set datafile separator ","
set datafile missing ""
set key left top
set xrange [0:*]
set yrange [0:*]
set xlabel "units of work an iteration"
set ylabel "time of an iteration [us]"
set multiplot layout words(each_of), words(kinds)
do for [each in each_of] {
  do for [kind in kinds] {
    of_these(which) = stringcolumn(1) eq kind && column(2) == each + 0 ? column(which) : NaN
    ranks = system(sprintf("awk -F, '$1 == \"%s\" && $2 == %s { print $3; exit }' '%s'", kind, each, csv))
    set title sprintf("%s, %s ranks, %s each", kind, ranks, each)
    plot csv using (of_these(4)):(of_these(11)) with linespoints pt 7 ps 0.6 title "computation and exchange", \
         csv using (of_these(4)):(of_these(5)) with linespoints pt 6 ps 0.6 title "computation alone", \
         csv using (of_these(4)):(of_these(8)) with lines dashtype 2 title "exchange alone"
  }
}
unset multiplot
