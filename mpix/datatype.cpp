// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "datatype.h"

#include <cstdint>
#include <string>
#include <vector>

#include "errors.h"
#include "window_state.h"

namespace mpix {
namespace {

struct Envelope {
  MPI_Count integers, addresses, counts, types;
  int combiner;

  /// Such datatypes are not made of others, and must not be freed.
  bool predefined() const {
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
  }
};

Envelope envelope_of(MPI_Datatype type) {
  Envelope e{};
#ifdef HAVE_MPI_LARGE_COUNT
  check(PMPI_Type_get_envelope_c(type, &e.integers, &e.addresses, &e.counts, &e.types, &e.combiner));
#else
  int integers = 0, addresses = 0, types = 0;
  check(PMPI_Type_get_envelope(type, &integers, &addresses, &types, &e.combiner));
  e.integers = integers;
  e.addresses = addresses;
  e.types = types;
#endif
  return e;
}

/// What a derived datatype was made with.
class Recipe {
 public:
  Recipe(MPI_Datatype type, const Envelope& e)
      : numbers_(static_cast<std::size_t>(e.counts)), parts_(static_cast<std::size_t>(e.types), MPI_DATATYPE_NULL) {
    std::vector<int> integers(static_cast<std::size_t>(e.integers));
    std::vector<MPI_Aint> addresses(static_cast<std::size_t>(e.addresses));
#ifdef HAVE_MPI_LARGE_COUNT
    check(PMPI_Type_get_contents_c(type, e.integers, e.addresses, e.counts, e.types, integers.data(), addresses.data(),
                                   numbers_.data(), parts_.data()));
#else
    check(PMPI_Type_get_contents(type, static_cast<int>(e.integers), static_cast<int>(e.addresses),
                                 static_cast<int>(e.types), integers.data(), addresses.data(), parts_.data()));
#endif
    // A datatype made by a large-count call has all its numbers among the counts, another those in bytes among the
    // addresses, behind the others.
    if (numbers_.empty()) {
      numbers_.assign(integers.begin(), integers.end());
      numbers_.insert(numbers_.end(), addresses.begin(), addresses.end());
    }
    for (const MPI_Datatype part : parts_) owned_.push_back(!envelope_of(part).predefined());
  }

  ~Recipe() {
    for (std::size_t i = 0; i < owned_.size(); ++i)
      if (owned_[i]) PMPI_Type_free(&parts_[i]);
  }

  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  MPI_Count number(MPI_Count i) const { return numbers_.at(static_cast<std::size_t>(i)); }
  MPI_Datatype part(MPI_Count i = 0) const { return parts_.at(static_cast<std::size_t>(i)); }

 private:
  std::vector<MPI_Count> numbers_;
  std::vector<MPI_Datatype> parts_;
  std::vector<bool> owned_;
};

/// Where the data of one element lies.
struct Layout {
  bool is_run;      ///< the bytes, in the order of the type map, are in the order of memory, without gaps
  MPI_Count first;  ///< of them, from the address of the buffer
  MPI_Count bytes;
  MPI_Count extent;  ///< from one element to the next

  bool runs_on(MPI_Count count) const { return is_run && (count <= 1 || bytes == 0 || extent == bytes); }
};

/// Puts blocks of elements behind each other, in the order of the type map, and finds out whether they are one run.
/// (The true extent of a datatype does not tell: MPICH counts parts that are empty.)
class Row {
 public:
  Row& add(MPI_Count place, MPI_Count count, const Layout& element) {
    if (count == 0 || element.bytes == 0) return *this;
    const MPI_Count begin = place + element.first;
    if (is_empty_) first_ = begin;
    is_run_ = is_run_ && element.runs_on(count) && (is_empty_ || begin == end_);
    is_empty_ = false;
    end_ = begin + count * element.bytes;
    return *this;
  }
  bool is_run() const { return is_run_; }
  MPI_Count first() const { return first_; }

 private:
  bool is_run_ = true, is_empty_ = true;
  MPI_Count first_ = 0, end_ = 0;
};

Layout layout_of(MPI_Datatype type);

/// Blocks of one kind of element at places of their own, counted in `unit` bytes; all of one length, or each of its
/// own.
Row row_of_blocks(const Recipe& recipe, const Layout& element, MPI_Count unit, bool one_length) {
  const MPI_Count count = recipe.number(0);
  const MPI_Count first_place = 1 + (one_length ? 1 : count);
  Row row;
  for (MPI_Count i = 0; i < count && row.is_run(); ++i)
    row.add(recipe.number(first_place + i) * unit, recipe.number(one_length ? 1 : 1 + i), element);
  return row;
}

Row row_of_vector(const Recipe& recipe, const Layout& element, MPI_Count unit) {
  const MPI_Count count = recipe.number(0), length = recipe.number(1), stride = recipe.number(2) * unit;
  return Row().add(0, count, Layout{element.runs_on(length), element.first, length * element.bytes, stride});
}

Row row_of_struct(const Recipe& recipe) {
  const MPI_Count count = recipe.number(0);
  Row row;
  MPI_Datatype last = MPI_DATATYPE_NULL;
  Layout element{};
  for (MPI_Count i = 0; i < count && row.is_run(); ++i) {
    if (last == MPI_DATATYPE_NULL || recipe.part(i) != last) element = layout_of(recipe.part(i));
    last = recipe.part(i);
    row.add(recipe.number(1 + count + i), recipe.number(1 + i), element);
  }
  return row;
}

/// A part of an array, whose elements come in the order of the array: it is one run where no byte is missing in
/// between.
Row row_of_array(MPI_Datatype type, const Layout& element, MPI_Count bytes) {
  MPI_Count first = 0, true_extent = 0;
  check(PMPI_Type_get_true_extent_x(type, &first, &true_extent));
  return Row().add(0, 1, Layout{element.runs_on(bytes / element.bytes) && true_extent == bytes, first, bytes, bytes});
}

/// Of a derived datatype that is not empty.
Row row_of(MPI_Datatype type, int combiner, const Recipe& recipe, MPI_Count bytes) {
  if (combiner == MPI_COMBINER_STRUCT) return row_of_struct(recipe);
  const Layout element = layout_of(recipe.part());
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      return Row().add(0, 1, element);
    case MPI_COMBINER_CONTIGUOUS:
      return Row().add(0, recipe.number(0), element);
    case MPI_COMBINER_VECTOR:
      return row_of_vector(recipe, element, element.extent);
    case MPI_COMBINER_HVECTOR:
      return row_of_vector(recipe, element, 1);
    case MPI_COMBINER_INDEXED:
      return row_of_blocks(recipe, element, element.extent, false);
    case MPI_COMBINER_HINDEXED:
      return row_of_blocks(recipe, element, 1, false);
    case MPI_COMBINER_INDEXED_BLOCK:
      return row_of_blocks(recipe, element, element.extent, true);
    case MPI_COMBINER_HINDEXED_BLOCK:
      return row_of_blocks(recipe, element, 1, true);
    case MPI_COMBINER_SUBARRAY:
    case MPI_COMBINER_DARRAY:
      return row_of_array(type, element, bytes);
    default:
      return Row().add(0, 1, Layout{false, 0, bytes, bytes});
  }
}

Layout layout_of(MPI_Datatype type) {
  Layout layout{true, 0, 0, 0};
  MPI_Count ignored = 0, true_extent = 0;
  check(PMPI_Type_size_x(type, &layout.bytes));
  check(PMPI_Type_get_extent_x(type, &ignored, &layout.extent));
  if (layout.bytes == 0) return layout;
  const Envelope envelope = envelope_of(type);
  if (envelope.predefined()) {
    check(PMPI_Type_get_true_extent_x(type, &layout.first, &true_extent));
    layout.is_run = layout.bytes == true_extent;
  } else {
    const Row row = row_of(type, envelope.combiner, Recipe(type, envelope), layout.bytes);
    layout.is_run = row.is_run();
    layout.first = row.first();
  }
  return layout;
}

/// Predefined datatypes that this thread used. Their handles are never given to another datatype,
/// so what is known of them stays true; derived ones are looked at each time.
struct KnownType {
  MPI_Datatype type;
  Layout layout;
  bool known;
};
constexpr unsigned known_bits = 4;
thread_local KnownType known_types[1u << known_bits];

KnownType* find_known(MPI_Datatype type) {
  KnownType& slot = known_types[slot_of_handle<known_bits>(type)];
  return slot.known && slot.type == type ? &slot : nullptr;
}

Layout known_layout_of(MPI_Datatype type, const char* side) {
  if (const KnownType* const known = find_known(type)) return known->layout;
  if (type == MPI_DATATYPE_NULL)
    throw Error(Fault::datatype, std::string("the ") + side + " datatype is MPI_DATATYPE_NULL");
  const Layout layout = layout_of(type);
  if (envelope_of(type).combiner == MPI_COMBINER_NAMED)
    known_types[slot_of_handle<known_bits>(type)] = KnownType{type, layout, true};
  return layout;
}

/// Why `count` of them are none.
std::string why_no_run(const Layout& layout, MPI_Count count, const char* side) {
  const std::string the_type = std::string("the ") + side + " datatype is ";
  if (!layout.is_run)
    return the_type +
           "not contiguous: calls on streams take datatypes whose bytes are in the order of memory, without gaps";
  if (layout.first < 0)
    return the_type + "contiguous, and begins " + std::to_string(-layout.first) + " bytes before its buffer";
  return the_type + "contiguous, and " + std::to_string(count) + " of them are not: it has " +
         std::to_string(layout.bytes) + " bytes and an extent of " + std::to_string(layout.extent);
}

}  // namespace

ByteRun run_of_bytes(MPI_Count count, MPI_Datatype type, const char* side, int blocks) {
  if (count < 0) throw Error(Fault::count, std::string("the ") + side + " count is " + std::to_string(count));
  const Layout layout = known_layout_of(type, side);
  if (count == 0 || layout.bytes == 0) return {};
  const MPI_Count all = blocks > 1 ? std::max<MPI_Count>(count, 2) : count;
  if (!layout.runs_on(all) || layout.first < 0) throw Error(Fault::unsupported, why_no_run(layout, all, side));
  ByteRun run{0, static_cast<std::size_t>(layout.first)};
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(count), static_cast<std::uint64_t>(layout.bytes), &run.bytes))
    throw Error(Fault::count, std::string("the ") + side + " buffer is larger than memory can be");
  return run;
}

/// MPI has no query; but to pack nothing of a type that is not committed is an error.
bool is_committed(MPI_Datatype type, MPI_Comm errors_return) {
  if (find_known(type)) return true;
  char nothing = 0, packed = 0;
  int position = 0, error_class = MPI_SUCCESS;
  const int code = PMPI_Pack(&nothing, 0, type, &packed, sizeof packed, &position, errors_return);
  if (code != MPI_SUCCESS) PMPI_Error_class(code, &error_class);
  return error_class != MPI_ERR_TYPE;
}

}  // namespace mpix
