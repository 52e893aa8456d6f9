/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* For controls that take NetAssist's feedback: the map that it is left in (see feedback.h). To be
 * included before glue.h. */
#pragma once

#include "kernel.h"

#include "feedback.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FEEDBACK_ENTRIES);
	__type(key, struct feedback_key);
	__type(value, struct feedback_value);
} feedback SEC(".maps");

static __always_inline struct cc_feedback feedback_of(struct sock *sk)
{
	struct sock_common *common = &sk->__sk_common;
	struct cc_feedback none = { 0 };
	union {
		struct feedback_key key;
		__u32 word[4];
	} ue = { 0 };
	struct feedback_value *value;

	if (common->skc_family == AF_INET6) {
		for (int i = 0; i < 4; i++)
			ue.word[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
	} else {
		ue.key.address[10] = ue.key.address[11] = 0xff;
		ue.word[3] = common->skc_daddr;
	}
	value = bpf_map_lookup_elem(&feedback, &ue.key);
	return value ? feedback_at(value, bpf_ktime_get_ns()) : none;
}

#define FEEDBACK(sk) feedback_of(sk)
