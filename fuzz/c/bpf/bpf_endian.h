/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* See bpf_helpers.h. For little-endian machines. */
#pragma once

#define bpf_htons(word) __builtin_bswap16(word)
#define bpf_ntohs(word) __builtin_bswap16(word)
#define bpf_htonl(word) __builtin_bswap32(word)
#define bpf_ntohl(word) __builtin_bswap32(word)
