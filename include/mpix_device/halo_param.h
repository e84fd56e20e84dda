/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) the libmpix authors */
#ifndef MPIX_DEVICE_HALO_PARAM_H
#define MPIX_DEVICE_HALO_PARAM_H

#include <stdint.h>

#include "channel_param.h"

/* Grows with every change of what kernels and the library share of a halo. */
#define MPIX_DEV_HALO_ABI 5

#ifdef __cplusplus
namespace mpix {
struct HaloBox;
struct HaloMessage;
struct HaloPart;
struct HaloWords;
}  // namespace mpix
typedef const mpix::HaloMessage MPIX_Dev_halo_messages;
typedef const mpix::HaloBox MPIX_Dev_halo_boxes;
typedef const mpix::HaloPart MPIX_Dev_halo_parts;
typedef mpix::HaloWords MPIX_Dev_halo_words;
#else
typedef const void MPIX_Dev_halo_messages;
typedef const void MPIX_Dev_halo_boxes;
typedef const void MPIX_Dev_halo_parts;
typedef void MPIX_Dev_halo_words;
#endif

/* What a kernel knows of a halo: an argument of it, by value. Nothing in it is for programs; mpix_device/halo_words.h
 * says what each word is. */
typedef struct MPIX_Dev_halo {
  uint32_t abi;
  uint32_t given;    /* messages of the program */
  uint32_t messages; /* those of the program, or chunks of them */
  uint32_t parts;    /* of an exchange */
  uint32_t halves;   /* buffers of a message, in turns */
  uint32_t unused;
  /* Memory of the device: */
  const uint32_t* first; /* by message of the program: the first of these; and one more */
  MPIX_Dev_halo_messages* message;
  MPIX_Dev_halo_boxes* box;
  MPIX_Dev_halo_parts* part; /* those that pack come first */
  MPIX_Dev_halo_words* words;
  MPIX_Dev_channel channel;
  MPIX_Dev_channel_host* bell; /* host back end: of those that wait for other ends */
} MPIX_Dev_halo;

#endif /* MPIX_DEVICE_HALO_PARAM_H */
