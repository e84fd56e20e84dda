/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_DEVICE_REQUEST_PARAM_H
#define MPIX_DEVICE_REQUEST_PARAM_H

#include <mpix_device/channel_param.h>
#include <stdint.h>

/* Grows with every change of what kernels and the library share of a device request. */
#define MPIX_DEV_REQUEST_ABI 2

#ifdef __cplusplus
namespace mpix {
namespace dev {
struct RequestState;
}  // namespace dev
}  // namespace mpix
typedef mpix::dev::RequestState MPIX_Dev_request_state;
#else
typedef void MPIX_Dev_request_state;
#endif

/* What a kernel knows of a persistent request: an argument of it, by value, or part of an array in memory of the
 * device. Copies stand for the same request; zeros for none. Nothing in it is for programs; mpix_device/requests.h says
 * what each word is. */
typedef struct MPIX_Drequest {
  uint32_t abi;
  uint32_t number;
  uint32_t partitions; /* 0: it has none */
  uint32_t sends;      /* it has partitions, and sends them */
  uint64_t generation;
  MPIX_Dev_request_state* state; /* device memory */
  /* Memory of the host: */
  uint64_t *up, *down, *note;
  uint64_t* partition;
  MPIX_Dev_channel_host* host;
  MPIX_Dev_channel_hooks* hooks; /* host back end; else null */
} MPIX_Drequest;

#endif /* MPIX_DEVICE_REQUEST_PARAM_H */
