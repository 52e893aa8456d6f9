/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the network has marked on the last acknowledgement of a socket, for TCP-ME. Whoever sees the
 * packets come in, before the socket does, leaves it in the socket's storage; where nobody does, nothing
 * is marked. */
#pragma once

#include "kernel.h"

#include "cc.h"

struct marks {
	u8 wla; /* CE in the IP header: set by the base station, as the sender does not send ECT with it */
	u8 ece; /* ECN-Echo in the TCP header */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct marks);
} marks SEC(".maps");

static __always_inline void read_marks(struct sock *sk, struct cc_sample *sample)
{
	struct marks *seen = bpf_sk_storage_get(&marks, sk, 0, 0);

	if (!seen)
		return;
	sample->wla = seen->wla;
	sample->ece = seen->ece;
}
