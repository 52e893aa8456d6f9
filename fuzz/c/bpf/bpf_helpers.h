/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Stands for libbpf's header of this name where parts of the steering program are compiled for the host: the helpers
 * that they call, on one packet in memory. */
#pragma once

#include <string.h>

#define SEC(name)
#undef __always_inline
#define __always_inline inline

/* Of the packet that is being parsed: where its network header is, and how much of it is in one piece. */
static const unsigned char *packet_bytes;
static __u32 packet_linear;

/* As the kernel's: fails where the bytes are not all there. */
static inline long bpf_skb_load_bytes_relative(const void *skb, __u32 offset, void *to, __u32 size,
					       __u32 from)
{
	if (from != BPF_HDR_START_NET || offset > packet_linear || size > packet_linear - offset)
		return -14;
	memcpy(to, packet_bytes + offset, size);
	return 0;
}

static inline long bpf_skb_pull_data(struct __sk_buff *skb, __u32 size)
{
	packet_linear = skb->len;
	return 0;
}

static inline struct bpf_sock *bpf_skc_lookup_tcp(void *skb, struct bpf_sock_tuple *tuple, __u32 size,
						  __u64 netns, __u64 flags)
{
	return NULL;
}
