// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <string>
#include <vector>

#include "measure.h"

namespace peers {

/// All that was measured of one exchange and size.
struct Section {
  std::string exchange, about;
  std::size_t face;
  std::vector<Measured> rows;

  /// Null: not measured.
  const Measured* find(const std::string& key, Mode mode) const;
};

/// The row that others are compared with: NCCL's grouped send and receive in the same mode, with user kernels
/// where the row has them. Loops are compared with NCCL's graph, pairs of GPUs with the copy engine.
const Measured* reference_of(const Section& section, const Measured& row);

std::string size_text(std::size_t bytes);

void print_section(const Section& section, bool csv);
void print_csv_header();
/// Medians and ratios side by side: a table for each exchange and mode.
void print_tables(const std::vector<Section>& sections, bool csv);
bool all_right(const std::vector<Section>& sections);

}  // namespace peers
