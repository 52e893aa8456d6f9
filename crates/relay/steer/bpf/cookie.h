/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* SYN cookies (RFC 4987, 3.6). A listener whose queue of half-open connections is full answers SYNs by cookies, and
 * the acknowledgement of one belongs to no socket: it is recognised here, and given to a listener. */
#pragma once

#include "decide.h"

static __always_inline bool may_be_cookies(void)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&cookies_until, &zero);

	return until && *until && bpf_ktime_get_ns() < *until;
}

/* What the kernel checks a cookie by. */
struct headers {
	union {
		struct ipv4 v4;
		struct ipv6 v6;
	} ip;
	struct tcp tcp;
};

static __always_inline bool is_cookie_of(struct bpf_sock *listener, struct headers *headers, __u8 version)
{
	__u32 length = sizeof(headers->ip.v6);

	if (version == 4)
		length = sizeof(headers->ip.v4);
	return !bpf_tcp_check_syncookie(listener, &headers->ip, length, (void *)&headers->tcp,
					sizeof(headers->tcp));
}

/* The listener that has sent the cookie which the packet acknowledges, or null. To be released. */
static __always_inline struct bpf_sock *sender_of_cookie(struct __sk_buff *skb, const struct settings *set,
							 const struct packet *packet,
							 struct syn_record *known, __u32 hashed, __u32 *index)
{
	__u32 generation = set->generation, all = generation ? set->workers[1] : set->workers[0];
	bool v6 = packet->version == 6;
	struct headers headers;

	__builtin_memset(&headers, 0, sizeof(headers));
	if (!load(skb, packet->transport, &headers.tcp, sizeof(headers.tcp)))
		return NULL;
	if (v6 ? !load(skb, packet->start, &headers.ip.v6, sizeof(headers.ip.v6))
	       : !load(skb, packet->start, &headers.ip.v4, sizeof(headers.ip.v4)))
		return NULL;
	/* The first is the one that its SYN was given to, as far as that is remembered. */
	for (__u32 try = 0; try <= TRIES && try <= all && all; try++) {
		struct bpf_sock *listener;

		if (try == 0) {
			if (!known)
				continue;
			*index = known->listener;
		} else {
			*index = (generation % GENERATIONS * WORKERS + (hashed + try) % all % WORKERS) * 2 + v6;
		}
		listener = bpf_map_lookup_elem(&listeners, index);
		if (!listener)
			continue;
		if (is_cookie_of(listener, &headers, packet->version))
			return listener;
		bpf_sk_release(listener);
	}
	return NULL;
}

/* The listener of a connection which the packet establishes by a cookie; null if it does not. To be released. */
static __always_inline struct bpf_sock *established_by_cookie(struct __sk_buff *skb,
							      const struct settings *set,
							      const struct packet *packet)
{
	struct connection connection = connection_from_client(packet);
	__u64 now = bpf_ktime_get_ns();
	struct bpf_sock *listener;
	struct syn_record *known, syn;
	__u32 index = 0;

	if ((packet->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK || !may_be_cookies() ||
	    choice_of(&clients, &packet->source) == PASS || flow_of(packet))
		return NULL;
	known = bpf_map_lookup_elem(&syn_records, &connection);
	if (known && known->verdict != SPLIT)
		return NULL;
	listener = sender_of_cookie(skb, set, packet, known, hash(&connection, set->seed) >> 32, &index);
	if (listener && known)
		known->at_ns = now;
	/* A flood has pushed it out of memory. */
	if (listener && !known) {
		syn = (struct syn_record){
			.first_ns = now,
			.at_ns = now,
			.sequence = packet->sequence - 1,
			.listener = index,
			.verdict = SPLIT,
		};
		bpf_map_update_elem(&syn_records, &connection, &syn, BPF_ANY);
	}
	return listener;
}
