/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The map in which NetAssist's agent leaves what the network says about each UE, and from which the
 * congestion controls of this host read it.
 *
 * A BPF map of type LRU_HASH with FEEDBACK_ENTRIES entries, without flags, pinned as `feedback` in the
 * folder of the loaded controls (/sys/fs/bpf/midspan/cc). Whoever comes first creates it, the loader or
 * the agent; it stays when controls are unloaded or replaced, until `midspan cc unload --all`. When it is
 * full the entry that was used least recently goes, and its connections behave as if their feedback had
 * timed out.
 *
 * All numbers are in the byte order of the host. A writer replaces an entry as a whole. */
#pragma once

#include "cc.h"

#define FEEDBACK_ENTRIES 65536
/* However long the writer says: nothing is believed for longer. */
#define FEEDBACK_TIMEOUT_MOST_MS 10000u

/* The UE: the remote address of the connections that its entry is for. IPv4 as IPv4-mapped IPv6
 * (RFC 4291, section 2.5.5.2), so that a socket of either family finds it. */
struct feedback_key {
	u8 address[16];
};

struct feedback_value {
	u64 updated_ns; /* CLOCK_MONOTONIC of this host when it was written */
	u64 bandwidth;  /* of the UE's radio link, in bytes of IP packets per second; 0: not known */
	u32 min_rtt_us; /* round-trip time between this host and the UE without any queue; 0: not known,
			   the least that the connection has measured stands in; CC_RTT_SMOOTHED: its
			   smoothed one does */
	u32 fairness;   /* NATCP's coefficient B in 256ths: 256 times the number of connections that
			   share the link; 0 is taken as 256 */
	u32 timeout_ms; /* after which the entry says nothing; three to four periods of the feedback */
	u32 sequence;   /* of the message that it came in, for whoever looks at the map */
	u32 queue;      /* bytes to keep in the queue of the UE's link, all its connections together */
	u32 pace;       /* 256ths of the bandwidth to send at; 0 is taken as 256 */
};

/* What the entry says at `now_ns`. */
CC_INLINE struct cc_feedback feedback_at(const struct feedback_value *value, u64 now_ns)
{
	u64 timeout_ms = min32(value->timeout_ms, FEEDBACK_TIMEOUT_MOST_MS);
	struct cc_feedback feedback = { 0 };

	if (sub_sat(now_ns, value->updated_ns) >= timeout_ms * NSEC_PER_MSEC)
		return feedback;
	feedback.bandwidth = value->bandwidth;
	feedback.min_rtt_us = value->min_rtt_us;
	feedback.fairness = value->fairness;
	feedback.queue = value->queue;
	feedback.pace = value->pace;
	return feedback;
}
