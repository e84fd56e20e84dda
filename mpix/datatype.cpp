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
  check(
      PMPI_Type_get_envelope_c(type, &e.integers, &e.addresses, &e.counts, &e.types, &e.combiner));
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
      : numbers_(static_cast<std::size_t>(e.counts)),
        parts_(static_cast<std::size_t>(e.types), MPI_DATATYPE_NULL) {
    std::vector<int> integers(static_cast<std::size_t>(e.integers));
    std::vector<MPI_Aint> addresses(static_cast<std::size_t>(e.addresses));
#ifdef HAVE_MPI_LARGE_COUNT
    check(PMPI_Type_get_contents_c(type, e.integers, e.addresses, e.counts, e.types,
                                   integers.data(), addresses.data(), numbers_.data(),
                                   parts_.data()));
#else
    check(PMPI_Type_get_contents(type, static_cast<int>(e.integers), static_cast<int>(e.addresses),
                                 static_cast<int>(e.types), integers.data(), addresses.data(),
                                 parts_.data()));
#endif
    // A datatype made by a large-count call has its numbers among the counts, another among the
    // integers.
    if (numbers_.empty()) numbers_.assign(integers.begin(), integers.end());
    for (const MPI_Datatype part : parts_) owned_.push_back(!envelope_of(part).predefined());
  }

  ~Recipe() {
    for (std::size_t i = 0; i < owned_.size(); ++i)
      if (owned_[i]) PMPI_Type_free(&parts_[i]);
  }

  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  MPI_Count number(std::size_t i) const { return numbers_.at(i); }
  MPI_Datatype part() const { return parts_.at(0); }

 private:
  std::vector<MPI_Count> numbers_;
  std::vector<MPI_Datatype> parts_;
  std::vector<bool> owned_;
};

bool has_gaps(MPI_Datatype type) {
  MPI_Count bytes = 0, lower_bound = 0, extent = 0;
  check(PMPI_Type_size_x(type, &bytes));
  check(PMPI_Type_get_extent_x(type, &lower_bound, &extent));
  return lower_bound != 0 || extent != bytes;
}

/// Size and extent alone do not tell: an indexed type may permute its elements. So look how it was
/// made.
bool is_run_of_bytes(MPI_Datatype type) {
  if (has_gaps(type)) return false;
  const Envelope envelope = envelope_of(type);
  if (envelope.predefined()) return true;
  switch (envelope.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_CONTIGUOUS:
    case MPI_COMBINER_RESIZED: return is_run_of_bytes(Recipe(type, envelope).part());
    case MPI_COMBINER_VECTOR: {
      const Recipe recipe(type, envelope);
      const bool dense = recipe.number(0) <= 1 || recipe.number(1) == recipe.number(2);
      return dense && is_run_of_bytes(recipe.part());
    }
    default: return false;
  }
}

/// Predefined datatypes that this thread used. Their handles are never given to another datatype,
/// so what is known of them stays true; derived ones are looked at each time.
struct KnownType {
  MPI_Datatype type;
  std::size_t bytes;
  bool known;
};
constexpr unsigned known_bits = 4;
__attribute__((tls_model("initial-exec"))) thread_local KnownType known_types[1u << known_bits];

std::size_t bytes_of_element(MPI_Datatype type, const char* side) {
  KnownType& slot = known_types[slot_of_handle<known_bits>(type)];
  if (slot.known && slot.type == type) return slot.bytes;
  if (type == MPI_DATATYPE_NULL)
    throw Error(Fault::datatype, std::string("the ") + side + " datatype is MPI_DATATYPE_NULL");
  if (!is_run_of_bytes(type))
    throw Error(Fault::unsupported,
                std::string("the ") + side +
                    " datatype is not contiguous: stream epochs take predefined datatypes and "
                    "contiguous ones made of them");
  MPI_Count bytes = 0;
  check(PMPI_Type_size_x(type, &bytes));
  const KnownType known{type, static_cast<std::size_t>(bytes), true};
  if (envelope_of(type).combiner == MPI_COMBINER_NAMED) slot = known;
  return known.bytes;
}

}  // namespace

std::size_t contiguous_bytes(MPI_Count count, MPI_Datatype type, const char* side) {
  if (count < 0)
    throw Error(Fault::count, std::string("the ") + side + " count is " + std::to_string(count));
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(count), bytes_of_element(type, side),
                             &bytes))
    throw Error(Fault::count, std::string("the ") + side + " buffer is larger than memory can be");
  return bytes;
}

}  // namespace mpix
