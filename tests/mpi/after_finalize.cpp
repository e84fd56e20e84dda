// SPDX-License-Identifier: BSD-3-Clause
// Copyright (c) the libmpix authors

// Calls after MPI_Finalize, with what was not freed before it: each returns, and says what is wrong.
#include <mpix.h>
#include <mpix_device.h>

#include <cstdio>

namespace {

bool all_well = true;

void expect(const char* what, int code, int wanted) {
  if (code == wanted) return;
  std::fprintf(stderr, "%s: error %d, not %d\n", what, code, wanted);
  all_well = false;
}
#define EXPECT_CODE(call, wanted) expect(#call, call, wanted)

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPIX_Dev domain = MPIX_DEV_NULL;
  MPIX_Channel channel = MPIX_CHANNEL_NULL;
  MPIX_Halo halo = MPIX_HALO_NULL;
  MPIX_Host_stream stream = nullptr;
  EXPECT_CODE(MPIX_Dev_create(MPI_COMM_WORLD, 2, MPI_INFO_NULL, &domain), MPI_SUCCESS);
  EXPECT_CODE(MPIX_Channel_create(1, 1, MPI_INFO_NULL, &channel), MPI_SUCCESS);
  EXPECT_CODE(MPIX_Halo_create(MPI_COMM_WORLD, 0, nullptr, MPI_INFO_NULL, &halo), MPI_SUCCESS);
  EXPECT_CODE(MPIX_Host_stream_create(&stream), MPI_SUCCESS);
  MPI_Finalize();

  double one = 1, sum = 0;
  MPIX_Dev other = MPIX_DEV_NULL;
  EXPECT_CODE(MPIX_Barrier_stream(MPI_COMM_WORLD, stream), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Allreduce_stream(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, stream), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Comm_prepare_stream(MPI_COMM_WORLD, MPI_INFO_NULL), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Comm_attach(MPI_COMM_WORLD, &sum, sizeof sum), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Dev_create(MPI_COMM_WORLD, 2, MPI_INFO_NULL, &other), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Halo_exchange_stream(halo, stream), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Halo_free(&halo), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Channel_free(&channel), MPI_SUCCESS);
  EXPECT_CODE(MPIX_Dev_free(&domain), MPI_ERR_OTHER);
  EXPECT_CODE(MPIX_Host_stream_synchronize(stream), MPI_SUCCESS);
  EXPECT_CODE(MPIX_Host_stream_destroy(&stream), MPI_SUCCESS);
  if (domain != MPIX_DEV_NULL || halo != MPIX_HALO_NULL) all_well = false;
  return all_well ? 0 : 1;
}
