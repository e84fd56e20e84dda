// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#pragma once

#include <mpix_device.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Particles in two dimensions that repel those close to them.
///
/// The domain is a row of cells, squares of side 1, with walls around it. Two particles at a distance r below the
/// cut-off push each other apart: stiffness * (1 - r²/cutoff²) times what lies between them. The cut-off is a cell's
/// side at most, so only the same cell and the two beside it matter. An iteration is the unit of time, and integrates
/// by Verlet's method.
///
/// Results are the same to the last bit, whoever computes them. Positions count from the left edge of the particle's
/// own cell, so they do not depend on where a process begins. The particles of a cell have an order: those that stay
/// keep theirs, then come those from the left, then those from the right, and forces are summed in that order. And
/// what is multiplied is a power of two, or was rounded to single precision before: such products are exact, and it
/// does not matter whether a compiler makes fused multiply-adds of them.
namespace particles {

struct alignas(16) Vector {
  double x, y;
};
struct Particle {
  Vector position, velocity, acceleration;
};

/// What pushes particles apart.
struct Law {
  double cutoff, cutoff_squared, strength;
  Law(double cutoff_of_pairs, double stiffness)
      : cutoff(cutoff_of_pairs),
        cutoff_squared(cutoff_of_pairs * cutoff_of_pairs),
        strength(stiffness / (cutoff_of_pairs * cutoff_of_pairs)) {}
};

/// The push of `other` on a particle at `at`. A particle does not push itself, as nothing lies between.
MPIX_FN void add_push(const Law& law, const Vector& at, const Vector& other, Vector& sum) {
  const double x = at.x - other.x, y = at.y - other.y;
  if (!(std::fabs(x) < law.cutoff && std::fabs(y) < law.cutoff)) return;
  const double short_x = static_cast<float>(x), short_y = static_cast<float>(y);
  const double rest = law.cutoff_squared - (short_x * short_x + short_y * short_y);
  if (rest <= 0) return;
  const double push = static_cast<float>(law.strength * rest);
  sum.x += push * short_x;
  sum.y += push * short_y;
}
/// Where a particle is for those of the cell at that side (-1, 0, 1).
MPIX_FN Vector seen_from(int side, const Vector& position) {
  return Vector{position.x - static_cast<double>(side), position.y};
}

MPIX_FN void reflect(double wall, double& position, double& velocity, double& acceleration) {
  position = 2 * wall - position;
  velocity = -velocity;
  acceleration = -acceleration;
}
/// An iteration of a particle, which may leave its cell meanwhile.
MPIX_FN void advance(Particle& p, const Vector& push) {
  p.velocity.x += (p.acceleration.x + push.x) / 2;
  p.velocity.y += (p.acceleration.y + push.y) / 2;
  p.acceleration = push;
  p.position.x += p.velocity.x + push.x / 2;
  p.position.y += p.velocity.y + push.y / 2;
  if (p.position.y < 0) reflect(0, p.position.y, p.velocity.y, p.acceleration.y);
  if (p.position.y > 1) reflect(1, p.position.y, p.velocity.y, p.acceleration.y);
}

enum class Way { stays, left, right, none };
constexpr int ways = 3;  // that a particle may take

/// Where a particle goes from its cell; its position is that in the cell where it then is.
MPIX_FN Way leave(Particle& p, bool wall_left, bool wall_right) {
  if (p.position.x < 0) {
    if (!wall_left) {
      p.position.x += 1;
      return Way::left;
    }
    reflect(0, p.position.x, p.velocity.x, p.acceleration.x);
  } else if (p.position.x >= 1) {
    if (!wall_right) {
      p.position.x -= 1;
      return Way::right;
    }
    reflect(1, p.position.x, p.velocity.x, p.acceleration.x);
  }
  return Way::stays;
}

/// Something of the particles of each cell: a counter, and room for some behind it, so that one put takes both along.
/// Cell 0 is a copy of the last cell of the process before, or of what leaves it; so is the one behind the last.
template <class Item>
struct Bins {
  char* memory;
  int room;             ///< of a cell
  MPIX_Dev_win window;  ///< a rank's part: its cells, and one more at both ends

  static constexpr std::size_t counter_bytes = sizeof(Vector);
  MPIX_FN std::size_t bytes(int items) const { return counter_bytes + static_cast<std::size_t>(items) * sizeof(Item); }
  MPIX_FN std::size_t stride() const { return bytes(room); }
  MPIX_FN char* cell(int number) const { return memory + static_cast<std::size_t>(number) * stride(); }
  MPIX_FN int& count(int number) const { return *reinterpret_cast<int*>(cell(number)); }
  MPIX_FN Item* items(int number) const { return reinterpret_cast<Item*>(cell(number) + counter_bytes); }
};

/// Of a rank, since the start.
struct Tally {
  std::uint64_t moved;  ///< into cells of this rank, from others
  std::uint64_t lost;   ///< for want of room
};

/// Of a process. There is one set of velocities, as nobody reads another's; neighbours read the positions of now while
/// the next ones are written.
struct Fields {
  Bins<Vector> now, next;            // positions
  Bins<Particle> to_left, to_right;  // what leaves a cell
  Vector *velocities, *accelerations;
  int* kept;  ///< of each cell: how many stay
  Tally* tallies;
  MPIX_FN std::size_t at(int cell, int i) const {
    return static_cast<std::size_t>(cell) * static_cast<std::size_t>(now.room) + static_cast<std::size_t>(i);
  }
};
MPIX_FN void swap_now_and_next(Fields& fields) {
  const Bins<Vector> now = fields.now;
  fields.now = fields.next;
  fields.next = now;
}

/// The cells of a rank.
struct Stretch {
  int rank;  ///< of those of its process
  int first, last;
  bool wall_left, wall_right;
  bool ring;  ///< the last cell is beside the first, and no other rank is needed
  MPIX_FN Stretch(int rank_here, int cells, bool is_first, bool is_last, bool is_ring)
      : rank(rank_here),
        first(1 + rank_here * cells),
        last((rank_here + 1) * cells),
        wall_left(is_first && !is_ring),
        wall_right(is_last && !is_ring),
        ring(is_ring) {}
  MPIX_FN int beside(int cell, int side) const {
    if (ring && side < 0 && cell == first) return last;
    if (ring && side > 0 && cell == last) return first;
    return cell + side;
  }
};

constexpr int most_threads = 128;  // of a rank
constexpr int most_warps = most_threads / 32;

#if defined(__CUDACC__) || defined(__HIPCC__)
#define PARTICLES_SHARED __shared__
#else
#define PARTICLES_SHARED
#endif

/// The threads of a rank, in a kernel of the domain or in another.
MPIX_DEV_FN mpix::dev::Team team_here() {
#if MPIX_ON_DEVICE
  return mpix::dev::Team{{mpix::dev::thread_of_block(), mpix::dev::block_size()}, true};
#else
  return mpix::dev::Team{{0, 1}, true};
#endif
}

/// The team: how many of the threads before this one go its way. Adds how many of all go each way.
MPIX_DEV_FN int place_among(const mpix::dev::Team& team, Way way, int (&all)[ways]) {
  PARTICLES_SHARED int of_warp[most_warps][ways];
  const std::uint32_t width = mpix::dev::warp_width(), lane = team.index % width;
  const int warp = static_cast<int>(team.index / width), warps = static_cast<int>((team.size + width - 1) / width);
  const mpix::dev::Ballot before_me = (mpix::dev::Ballot{1} << lane) - 1;
  int place = 0;
  for (int w = 0; w < ways; ++w) {
    const mpix::dev::Ballot who = mpix::dev::ballot(team, way == static_cast<Way>(w));
    if (way == static_cast<Way>(w)) place = static_cast<int>(mpix::dev::count_of(who & before_me));
    if (lane == 0) of_warp[warp][w] = static_cast<int>(mpix::dev::count_of(who));
  }
  mpix::dev::sync_team(team);
  for (int w = 0; w < ways; ++w)
    for (int i = 0; i < warps; ++i) {
      if (way == static_cast<Way>(w) && i < warp) place += of_warp[i][w];
      all[w] += of_warp[i][w];
    }
  mpix::dev::sync_team(team);  // of_warp may be written again
  return place;
}

MPIX_DEV_FN Vector push_on(const Fields& fields, const Stretch& mine, const Law& law, int cell,
                           const Vector& position) {
  Vector sum{0, 0};
  MPIX_NO_UNROLL
  for (int side = -1; side <= 1; ++side) {
    const int other = mine.beside(cell, side), count = fields.now.count(other);
    const Vector* const others = fields.now.items(other);
    const Vector at = seen_from(side, position);
    for (int i = 0; i < count; ++i) add_push(law, at, others[i], sum);
  }
  return sum;
}

MPIX_DEV_FN void store(const Fields& fields, int cell, int i, const Particle& particle) {
  fields.next.items(cell)[i] = particle.position;
  fields.velocities[fields.at(cell, i)] = particle.velocity;
  fields.accelerations[fields.at(cell, i)] = particle.acceleration;
}

/// Forces, the next positions, and who leaves its cell, by all threads of a rank. As many particles as there are
/// threads go at a time: all of them are read before one is stored, and it is stored at its place or before it.
MPIX_DEV_CALL void update(Fields fields, Stretch mine, Law law) {
  const mpix::dev::Team team = team_here();
  for (int cell = mine.first; cell <= mine.last; ++cell) {
    const int count = fields.now.count(cell);
    int done[ways] = {};
    for (int begin = 0; begin < count; begin += static_cast<int>(team.size)) {
      const int i = begin + static_cast<int>(team.index);
      Particle particle{};
      Way way = Way::none;
      if (i < count) {
        const Vector position = fields.now.items(cell)[i];
        const Vector push = push_on(fields, mine, law, cell, position);
        particle = Particle{position, fields.velocities[fields.at(cell, i)], fields.accelerations[fields.at(cell, i)]};
        advance(particle, push);
        way = leave(particle, mine.wall_left && cell == mine.first, mine.wall_right && cell == mine.last);
      }
      const int stay = done[0], left = done[1], right = done[2];
      const int place = place_among(team, way, done);
      if (way == Way::stays) store(fields, cell, stay + place, particle);
      if (way == Way::left) fields.to_left.items(cell)[left + place] = particle;
      if (way == Way::right) fields.to_right.items(cell)[right + place] = particle;
    }
    if (team.index == 0) {
      fields.kept[cell] = done[0];
      fields.to_left.count(cell) = done[1];
      fields.to_right.count(cell) = done[2];
    }
  }
  mpix::dev::sync_team(team);
}

/// What has left the cells beside comes in behind what stays, by all threads of a rank.
MPIX_DEV_CALL void take_in(Fields fields, Stretch mine) {
  const mpix::dev::Team team = team_here();
  std::uint64_t moved = 0, lost = 0;
  for (int cell = mine.first; cell <= mine.last; ++cell) {
    int count = fields.kept[cell];
    for (const int side : {-1, 1}) {
      const Bins<Particle>& bins = side < 0 ? fields.to_right : fields.to_left;
      const int other = mine.beside(cell, side), come = bins.count(other), room = fields.now.room - count;
      const int taken = come < room ? come : room;
      for (int i = static_cast<int>(team.index); i < taken; i += static_cast<int>(team.size))
        store(fields, cell, count + i, bins.items(other)[i]);
      count += taken;
      moved += static_cast<std::uint64_t>(come);
      lost += static_cast<std::uint64_t>(come - taken);
    }
    if (team.index == 0) fields.next.count(cell) = count;
  }
  if (team.index == 0) {
    fields.tallies[mine.rank].moved += moved;
    fields.tallies[mine.rank].lost += lost;
  }
  mpix::dev::sync_team(team);
}

/// How particles lie and move at the start.
struct Start {
  int particles;  ///< of a cell
  double speed;   ///< most, in each direction
  std::uint64_t seed;
};
/// From 0 to less than 1.
inline double random_at(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  const auto mix = [](std::uint64_t v) {  // splitmix64
    v += 0x9e3779b97f4a7c15u;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
  };
  return static_cast<double>(mix(mix(mix(seed) ^ a) ^ b) >> 11) * 0x1p-53;
}
using Cell = std::vector<Particle>;
/// That cell of all.
inline Cell start_of(const Start& start, int cell) {
  Cell particles(static_cast<std::size_t>(start.particles));
  std::uint64_t drawn = 0;
  const auto random = [&] { return random_at(start.seed, static_cast<std::uint64_t>(cell), drawn++); };
  for (Particle& p : particles) {
    p.position.x = random();
    p.position.y = random();
    p.velocity.x = start.speed * (2 * random() - 1);
    p.velocity.y = start.speed * (2 * random() - 1);
    p.acceleration = Vector{0, 0};
  }
  return particles;
}

/// All of it by one thread, one particle after the other.
inline std::vector<Cell> serial(const Start& start, const Law& law, int cells, int iterations) {
  const auto end = static_cast<std::size_t>(cells);
  std::vector<Cell> all;
  for (int cell = 0; cell < cells; ++cell) all.push_back(start_of(start, cell));
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::vector<Cell> next(end), to_left(end), to_right(end);
    for (std::size_t cell = 0; cell < end; ++cell)
      for (Particle p : all[cell]) {
        Vector push{0, 0};
        const std::size_t before = cell > 0 ? 1 : 0, behind = cell + 1 < end ? 1 : 0;
        for (std::size_t other = cell - before; other <= cell + behind; ++other)
          for (const Particle& o : all[other])
            add_push(law, seen_from(static_cast<int>(other) - static_cast<int>(cell), p.position), o.position, push);
        advance(p, push);
        const Way way = leave(p, cell == 0, cell + 1 == end);
        (way == Way::stays ? next : way == Way::left ? to_left : to_right)[cell].push_back(p);
      }
    for (std::size_t cell = 0; cell < end; ++cell) {
      if (cell > 0) next[cell].insert(next[cell].end(), to_right[cell - 1].begin(), to_right[cell - 1].end());
      if (cell + 1 < end) next[cell].insert(next[cell].end(), to_left[cell + 1].begin(), to_left[cell + 1].end());
    }
    all.swap(next);
  }
  return all;
}

}  // namespace particles
