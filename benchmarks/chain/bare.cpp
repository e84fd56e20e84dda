// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include "bare.h"

#include <mpi.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

void require(long result, const char* call) {
  if (result >= 0) return;
  std::fprintf(stderr, "chain: %s: %s\n", call, fi_strerror(static_cast<int>(-result)));
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define FABRIC(call) require(static_cast<long>(call), #call)

/// A deferred operation and what it points to.
struct Operation {
  fi_deferred_work work;
  fi_op_rma write;
  fi_op_atomic atomic;
  iovec source;
  fi_rma_iov target;
  fi_ioc operand;
  fi_rma_ioc word;
  std::uint64_t value;
};

}  // namespace

struct BareChain::State {
  std::size_t bytes;
  int rank = 0;
  bool polls = false;
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fid_cq* queue = nullptr;
  fid_ep* endpoint = nullptr;
  fid_mr* region = nullptr;
  fid_cntr *doorbell = nullptr, *delivered = nullptr, *done = nullptr;
  std::vector<std::uint64_t> memory;  // signal word, payload in, payload out
  fi_addr_t peer = FI_ADDR_UNSPEC;
  std::uint64_t peer_key = 0, peer_base = 0, round = 0;
  std::vector<Operation> operations;

  void queue_round(std::uint64_t k) {
    Operation& data = operations[2 * (k % 16)];
    Operation& signal = operations[2 * (k % 16) + 1];
    data = signal = Operation{};
    data.source = {memory.data() + 8 + bytes / 8, bytes};
    data.target = {peer_base + 64, bytes, peer_key};
    data.write.ep = endpoint;
    data.write.flags = FI_DELIVERY_COMPLETE;
    data.write.msg.msg_iov = &data.source;
    data.write.msg.iov_count = 1;
    data.write.msg.addr = peer;
    data.write.msg.rma_iov = &data.target;
    data.write.msg.rma_iov_count = 1;
    data.write.msg.context = &data.work.context;
    data.work.threshold = k;
    data.work.triggering_cntr = doorbell;
    data.work.completion_cntr = delivered;
    data.work.op_type = FI_OP_WRITE;
    data.work.op.rma = &data.write;
    FABRIC(fi_control(&domain->fid, FI_QUEUE_WORK, &data.work));
    signal.value = 1;
    signal.operand = {&signal.value, 1};
    signal.word = {peer_base, 1, peer_key};
    signal.atomic.ep = endpoint;
    signal.atomic.flags = FI_DELIVERY_COMPLETE;
    signal.atomic.msg.msg_iov = &signal.operand;
    signal.atomic.msg.iov_count = 1;
    signal.atomic.msg.addr = peer;
    signal.atomic.msg.rma_iov = &signal.word;
    signal.atomic.msg.rma_iov_count = 1;
    signal.atomic.msg.datatype = FI_UINT64;
    signal.atomic.msg.op = FI_SUM;
    signal.atomic.msg.context = &signal.work.context;
    signal.work.threshold = k;
    signal.work.triggering_cntr = delivered;
    signal.work.completion_cntr = done;
    signal.work.op_type = FI_OP_ATOMIC;
    signal.work.op.atomic = &signal.atomic;
    FABRIC(fi_control(&domain->fid, FI_QUEUE_WORK, &signal.work));
  }

  void pause() {
    fi_cq_entry entry;
    if (polls) fi_cq_read(queue, &entry, 1);
    sched_yield();
  }

  void await(std::uint64_t value) {
    while (__atomic_load_n(memory.data(), __ATOMIC_ACQUIRE) < value) pause();
  }
};

BareChain::BareChain(std::size_t bytes, bool provider_thread) : state_(std::make_unique<State>()) {
  setenv("FI_SOCKETS_PE_WAITTIME", "0", 0);  // else that thread polls for 10 ms before it sleeps
  State& s = *state_;
  MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
  s.bytes = (bytes + 7) / 8 * 8;
  s.polls = !provider_thread;
  fi_info* hints = fi_allocinfo();
  hints->caps = FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->domain_attr->data_progress = provider_thread ? FI_PROGRESS_UNSPEC : FI_PROGRESS_MANUAL;
  hints->fabric_attr->prov_name = strdup("sockets");
  FABRIC(fi_getinfo(FI_VERSION(1, 15), nullptr, nullptr, 0, hints, &s.info));
  fi_freeinfo(hints);
  FABRIC(fi_fabric(s.info->fabric_attr, &s.fabric, nullptr));
  FABRIC(fi_domain(s.fabric, s.info, &s.domain, nullptr));
  fi_av_attr av{};
  av.type = FI_AV_TABLE;
  FABRIC(fi_av_open(s.domain, &av, &s.addresses, nullptr));
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_CONTEXT;
  cq.wait_obj = FI_WAIT_NONE;
  FABRIC(fi_cq_open(s.domain, &cq, &s.queue, nullptr));
  FABRIC(fi_endpoint(s.domain, s.info, &s.endpoint, nullptr));
  FABRIC(fi_ep_bind(s.endpoint, &s.addresses->fid, 0));
  FABRIC(fi_ep_bind(s.endpoint, &s.queue->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
  FABRIC(fi_enable(s.endpoint));
  fi_cntr_attr counter{};
  counter.events = FI_CNTR_EVENTS_COMP;
  for (fid_cntr** each : {&s.doorbell, &s.delivered, &s.done}) FABRIC(fi_cntr_open(s.domain, &counter, each, nullptr));

  s.memory.resize(8 + 2 * s.bytes / 8);
  const std::size_t all = s.memory.size() * 8;
  FABRIC(fi_mr_reg(s.domain, s.memory.data(), all, FI_REMOTE_WRITE, 0, 1, 0, &s.region, nullptr));
  struct Card {
    char name[64];
    std::uint64_t length, key, base;
  } mine{}, theirs{};
  std::size_t length = sizeof mine.name;
  FABRIC(fi_getname(&s.endpoint->fid, mine.name, &length));
  const bool addressed = s.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
  mine.key = fi_mr_key(s.region);
  mine.base = addressed ? reinterpret_cast<std::uintptr_t>(s.memory.data()) : 0;
  MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, 1 - s.rank, 0, &theirs, sizeof theirs, MPI_BYTE, 1 - s.rank, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (fi_av_insert(s.addresses, theirs.name, 1, &s.peer, 0, nullptr) != 1) require(-FI_EADDRNOTAVAIL, "fi_av_insert");
  s.peer_key = theirs.key;
  s.peer_base = theirs.base;
  s.operations.resize(32);
  MPI_Barrier(MPI_COMM_WORLD);
}

double BareChain::median(int rounds) {
  State& s = *state_;
  std::vector<double> half;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t k = ++s.round;
    while (fi_cntr_read(s.done) + 8 < k) s.pause();
    s.queue_round(k);
    if (s.rank == 1) s.await(k);
    const double start = MPI_Wtime();
    FABRIC(fi_cntr_add(s.doorbell, 1));
    if (s.rank == 0) {
      s.await(k);
      half.push_back((MPI_Wtime() - start) / 2 * 1e6);
    }
  }
  while (fi_cntr_read(s.done) < s.round) s.pause();
  // The peer may need this side's progress for its last answer.
  for (int i = 0; i < 200; ++i) s.pause();
  if (half.empty()) return 0;
  std::sort(half.begin(), half.end());
  return half[half.size() / 2];
}

BareChain::~BareChain() {
  MPI_Barrier(MPI_COMM_WORLD);
  State& s = *state_;
  fi_close(&s.region->fid);
  for (fid_cntr* each : {s.doorbell, s.delivered, s.done}) fi_close(&each->fid);
  fi_close(&s.endpoint->fid);
  fi_close(&s.queue->fid);
  fi_close(&s.addresses->fid);
  fi_close(&s.domain->fid);
  fi_close(&s.fabric->fid);
  fi_freeinfo(s.info);
}
