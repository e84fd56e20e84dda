// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// The floor under an exchange between nodes: each rank writes to each other rank and waits until all have written to
// it, one write each and nothing else, with libfabric alone; the same with one tagged send each, into receives that lie
// ready, and which nobody answers; and with messages of MPI. In turns.
#include <mpi.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int rounds = 500, repeats = 7;

void require(long result, const char* call) {
  if (result >= 0) return;
  std::fprintf(stderr, "exchange: %s: %s\n", call, fi_strerror(static_cast<int>(-result)));
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define FABRIC(call) require(static_cast<long>(call), #call)

struct World {
  int rank = 0, size = 0;
  World() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
};

enum class By { write, send };

/// One operation for each other rank a round. The last word of a message is the number of its round. A slot takes every
/// other round, so that a receive is posted for it when its sender has heard of the round before.
class Fabric {
 public:
  Fabric(By by, std::size_t bytes) : by_(by), bytes_(bytes), words_((bytes + 63) / 64 * 8) {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE | FI_TAGGED | FI_SEND | FI_RECV;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->fabric_attr->prov_name = strdup("sockets");
    FABRIC(fi_getinfo(FI_VERSION(1, 15), nullptr, nullptr, 0, hints, &info_));
    fi_freeinfo(hints);
    FABRIC(fi_fabric(info_->fabric_attr, &fabric_, nullptr));
    FABRIC(fi_domain(fabric_, info_, &domain_, nullptr));
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    FABRIC(fi_av_open(domain_, &addresses, &addresses_, nullptr));
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_CONTEXT;
    queue.wait_obj = FI_WAIT_NONE;
    FABRIC(fi_cq_open(domain_, &queue, &queue_, nullptr));
    FABRIC(fi_endpoint(domain_, info_, &endpoint_, nullptr));
    FABRIC(fi_ep_bind(endpoint_, &addresses_->fid, 0));
    FABRIC(fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
    FABRIC(fi_enable(endpoint_));
    exchange_addresses();
    for (int from = 0; by_ == By::send && from < world_.size; ++from)
      for (std::uint64_t turn : {0, 1}) receive(from, turn);
    MPI_Barrier(MPI_COMM_WORLD);
    round();  // connects
    drain();
  }
  ~Fabric() {
    drain();
    fi_close(&region_->fid);
    fi_close(&endpoint_->fid);
    fi_close(&queue_->fid);
    fi_close(&addresses_->fid);
    fi_close(&domain_->fid);
    fi_close(&fabric_->fid);
    fi_freeinfo(info_);
  }

  void round() {
    ++round_;
    for (int to = 0; to < world_.size; ++to) {
      if (to == world_.rank) continue;
      std::uint64_t* const source = slot(2, to);
      source[bytes_ / 8 - 1] = round_;
      if (by_ == By::write)
        write(to, source);
      else
        send(to, source);
      progress();  // sends one message
    }
    for (int from = 0; from < world_.size; ++from) {
      if (from == world_.rank) continue;
      while (__atomic_load_n(slot(round_ % 2, from) + bytes_ / 8 - 1, __ATOMIC_ACQUIRE) < round_) {
        progress();
        sched_yield();
      }
      if (by_ == By::send) receive(from, round_ % 2);
    }
  }

  /// Until all ranks have come here: others may need this one's progress.
  void drain() {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int over = 0; !over; MPI_Test(&request, &over, MPI_STATUS_IGNORE))
      for (int i = 0; i < 10; ++i) progress();
  }

 private:
  struct Peer {
    fi_addr_t address;
    std::uint64_t key, base;
  };

  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  void write(int to, const std::uint64_t* source) {
    const std::uint64_t there = peer(to).base + 8 * words_ * slot_index(round_ % 2, world_.rank);
    FABRIC(fi_write(endpoint_, source, bytes_, nullptr, peer(to).address, there, peer(to).key, nullptr));
  }

  void send(int to, const std::uint64_t* source) {
    const iovec data{const_cast<std::uint64_t*>(source), bytes_};
    fi_msg_tagged message{};
    message.msg_iov = &data;
    message.iov_count = 1;
    message.addr = peer(to).address;
    message.tag = slot_index(round_ % 2, world_.rank);
    FABRIC(fi_tsendmsg(endpoint_, &message, FI_INJECT_COMPLETE));  // else it is answered
  }

  void receive(int from, std::uint64_t turn) {
    const iovec data{slot(turn, from), bytes_};
    fi_msg_tagged message{};
    message.msg_iov = &data;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.tag = slot_index(turn, from);
    FABRIC(fi_trecvmsg(endpoint_, &message, 0));
  }

  void progress() {
    fi_cq_entry entry;
    fi_cq_read(queue_, &entry, 1);
  }

  std::size_t slot_index(std::uint64_t part, int rank) const {
    return part * static_cast<std::size_t>(world_.size) + static_cast<std::size_t>(rank);
  }
  std::uint64_t* slot(std::uint64_t part, int rank) { return memory_.data() + words_ * slot_index(part, rank); }

  void exchange_addresses() {
    memory_.resize(3 * words_ * static_cast<std::size_t>(world_.size));
    FABRIC(fi_mr_reg(domain_, memory_.data(), 8 * memory_.size(), FI_REMOTE_WRITE, 0, 1, 0, &region_, nullptr));
    struct Card {
      char name[64];
      std::uint64_t key, base;
    } mine{};
    std::size_t length = sizeof mine.name;
    FABRIC(fi_getname(&endpoint_->fid, mine.name, &length));
    mine.key = fi_mr_key(region_);
    mine.base = info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? reinterpret_cast<std::uintptr_t>(memory_.data()) : 0;
    std::vector<Card> cards(static_cast<std::size_t>(world_.size));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    for (const Card& card : cards) {
      fi_addr_t address = FI_ADDR_UNSPEC;
      if (fi_av_insert(addresses_, card.name, 1, &address, 0, nullptr) != 1) require(-FI_EADDRNOTAVAIL, "fi_av_insert");
      peers_.push_back({address, card.key, card.base});
    }
  }

  const World world_;
  const By by_;
  const std::size_t bytes_, words_;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fid_mr* region_ = nullptr;
  std::vector<std::uint64_t> memory_;  // slots of even rounds, and of odd ones; then sources
  std::vector<Peer> peers_;
  std::uint64_t round_ = 0;
};

class Messages {
 public:
  explicit Messages(std::size_t bytes) : bytes_(bytes), memory_(2 * bytes * static_cast<std::size_t>(world_.size)) {}
  void round() {
    std::vector<MPI_Request> requests;
    const auto add = [&](auto call, int base) {
      for (int peer = 0; peer < world_.size; ++peer)
        if (peer != world_.rank)
          call(memory_.data() + bytes_ * static_cast<std::size_t>(base + peer), static_cast<int>(bytes_), MPI_BYTE,
               peer, 1, MPI_COMM_WORLD, &requests.emplace_back());
    };
    add(MPI_Irecv, 0);
    add(MPI_Isend, world_.size);
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  void drain() {}

 private:
  const World world_;
  const std::size_t bytes_;
  std::vector<char> memory_;
};

template <class Exchange>
double time_of(Exchange& exchange) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < rounds; ++i) exchange.round();
  const double each = (MPI_Wtime() - start) / rounds * 1e6;
  exchange.drain();
  return each;
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  setenv("FI_SOCKETS_PE_WAITTIME", "0", 0);
  int threads = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);
  {
    const World world;
    if (world.rank == 0)
      std::printf(
          "exchange: each rank to each other, %d ranks, sockets; mean of %d rounds, middle of %d turns [us]\n"
          "%8s %14s %14s %14s\n",
          world.size, rounds, repeats, "bytes", "one write each", "one send each", "MPI messages");
    for (std::size_t bytes : {64, 256, 896, 1024, 2048, 4096, 8192}) {
      Fabric writes(By::write, bytes), sends(By::send, bytes);
      Messages messages(bytes);
      std::vector<double> with_writes, with_sends, with_messages;
      for (int i = 0; i < repeats; ++i) {
        with_writes.push_back(time_of(writes));
        with_sends.push_back(time_of(sends));
        with_messages.push_back(time_of(messages));
      }
      if (world.rank == 0)
        std::printf("%8zu %14.1f %14.1f %14.1f\n", bytes, middle(with_writes), middle(with_sends),
                    middle(with_messages));
    }
  }
  MPI_Finalize();
  return 0;
}
