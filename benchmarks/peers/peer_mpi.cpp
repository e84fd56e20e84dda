// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>

#include "kernels.h"
#include "memory.h"
#include "peer.h"
#include "support/abort.h"

namespace peers {
namespace {

/// What MPI sends from and receives into: memory of the GPU, or pinned memory that is copied from and to it.
class MpiMemory {
 public:
  MpiMemory(const Exchange& exchange, bool staged, cudaStream_t stream)
      : bytes_(exchange.bytes), staged_(staged), stream_(stream), send_(bytes_), receive_(bytes_) {
    if (!staged_) return;
    CHECK_CUDA(cudaMallocHost(&pinned_send_, bytes_));
    CHECK_CUDA(cudaMallocHost(&pinned_receive_, bytes_));
  }
  ~MpiMemory() {
    if (!staged_) return;
    CHECK_CUDA(cudaFreeHost(pinned_send_));
    CHECK_CUDA(cudaFreeHost(pinned_receive_));
  }
  MpiMemory(const MpiMemory&) = delete;
  MpiMemory& operator=(const MpiMemory&) = delete;

  char* device_send() const { return send_.get(); }
  char* device_receive() const { return receive_.get(); }
  char* send() const { return staged_ ? static_cast<char*>(pinned_send_) : send_.get(); }
  char* receive() const { return staged_ ? static_cast<char*>(pinned_receive_) : receive_.get(); }

  /// The CPU waits until the data is there for MPI, and the memory to receive into is no longer read.
  void synchronize() {
    if (staged_) CHECK_CUDA(cudaMemcpyAsync(pinned_send_, send_.get(), bytes_, cudaMemcpyDeviceToHost, stream_));
    CHECK_CUDA(cudaStreamSynchronize(stream_));
  }
  void return_to_stream() {
    if (staged_) CHECK_CUDA(cudaMemcpyAsync(receive_.get(), pinned_receive_, bytes_, cudaMemcpyHostToDevice, stream_));
  }

 private:
  const std::size_t bytes_;
  const bool staged_;
  const cudaStream_t stream_;
  DeviceMemory send_, receive_;
  void* pinned_send_ = nullptr;
  void* pinned_receive_ = nullptr;
};

/// The exchange as programs make it that have MPI alone: a kernel, a synchronization, MPI, a kernel. So it stands
/// beside what has two kernels by libmpix, too.
class MpiExchanger final : public Exchanger {
 public:
  MpiExchanger(const Exchange& exchange, bool staged, cudaStream_t stream)
      : exchange_(exchange),
        how_(staged ? "staged" : "GPU-aware"),
        suffix_(staged ? "-staged" : ""),
        stream_(stream),
        memory_(exchange, staged, stream) {
    CHECK_MPI(MPI_Win_create(memory_.receive(), static_cast<MPI_Aint>(exchange.bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                             &window_));
    MPI_Group world;
    CHECK_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK_MPI(MPI_Group_incl(world, static_cast<int>(exchange.neighbours.size()), exchange.neighbours.data(), &group_));
    CHECK_MPI(MPI_Group_free(&world));
  }
  ~MpiExchanger() override {
    CHECK_MPI(MPI_Group_free(&group_));
    CHECK_MPI(MPI_Win_free(&window_));
  }

  std::vector<Row> rows() override {
    const auto row = [&](const char* key, const char* name, void (MpiExchanger::*exchange)()) {
      const auto epoch = [this, exchange] {
        launch_user_kernel(stream_);
        memory_.synchronize();
        (this->*exchange)();
        memory_.return_to_stream();
        launch_user_kernel(stream_);
      };
      return Row{key + suffix_,
                 std::string(name) + ", " + how_,
                 epoch,
                 {},
                 false,
                 memory_.device_send(),
                 [this]() -> const char* { return memory_.device_receive(); }};
    };
    return {row("mpi-p2p", "MPI Isend/Irecv", &MpiExchanger::point_to_point),
            row("mpi-rma", "MPI active RMA", &MpiExchanger::active_rma)};
  }

 private:
  void point_to_point() {
    requests_.resize(2 * exchange_.messages.size());
    std::size_t next = 0;
    int tag = 0;
    for (const Message& m : exchange_.messages)
      CHECK_MPI(MPI_Irecv(memory_.receive() + m.slot, static_cast<int>(m.bytes), MPI_BYTE, m.origin, tag++,
                          MPI_COMM_WORLD, &requests_[next++]));
    tag = 0;
    for (const Message& m : exchange_.messages)
      CHECK_MPI(MPI_Isend(memory_.send() + m.slot, static_cast<int>(m.bytes), MPI_BYTE, m.target, tag++, MPI_COMM_WORLD,
                          &requests_[next++]));
    CHECK_MPI(MPI_Waitall(static_cast<int>(next), requests_.data(), MPI_STATUSES_IGNORE));
  }

  void active_rma() {
    CHECK_MPI(MPI_Win_post(group_, 0, window_));
    CHECK_MPI(MPI_Win_start(group_, 0, window_));
    for (const Message& m : exchange_.messages)
      CHECK_MPI(MPI_Put(memory_.send() + m.slot, static_cast<int>(m.bytes), MPI_BYTE, m.target,
                        static_cast<MPI_Aint>(m.slot), static_cast<int>(m.bytes), MPI_BYTE, window_));
    CHECK_MPI(MPI_Win_complete(window_));
    CHECK_MPI(MPI_Win_wait(window_));
  }

  const Exchange exchange_;
  const std::string how_, suffix_;
  const cudaStream_t stream_;
  MpiMemory memory_;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Group group_ = MPI_GROUP_NULL;
  std::vector<MPI_Request> requests_;
};

/// Looked up: MPI libraries differ in whether they have it, and where they declare it.
bool says_gpu_aware() {
  void* query = dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
  return query && reinterpret_cast<int (*)()>(query)() == 1;
}

class Mpi final : public Peer {
 public:
  Mpi(bool staged, cudaStream_t stream) : staged_(staged), stream_(stream) {}
  std::string name() const override { return "MPI"; }
  std::string about() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    CHECK_MPI(MPI_Get_library_version(text, &length));
    std::string line(text, static_cast<std::size_t>(length));
    line = line.substr(0, line.find('\n'));
    std::replace(line.begin(), line.end(), '\t', ' ');
    return line + (staged_ ? ", staged through pinned memory" : ", GPU-aware");
  }
  std::unique_ptr<Exchanger> connect(const Exchange& exchange) override {
    return std::make_unique<MpiExchanger>(exchange, staged_, stream_);
  }

 private:
  const bool staged_;
  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Peer> find_mpi(const Machine& machine) {
  const bool staged = machine.mpi_memory == "auto" ? !says_gpu_aware() : machine.mpi_memory == "staged";
  return std::make_unique<Mpi>(staged, machine.stream);
}

}  // namespace peers
