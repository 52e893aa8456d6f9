/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The confirmed handshake: a client's SYN is held until user space has asked the server, and then comes
 * back, by a link of the relay's own, to be split; or to go on to the server, whose refusal or silence
 * is then the client's to see. */
#pragma once

#include "decide.h"

/* A SYN that comes again so soon is a duplicate, not a retransmission: one takes a second
 * (RFC 6298, 2.1). */
#define DUPLICATE (SECOND / 5)
/* At the first retransmission user space lets a SYN go on. One that is held for longer than until then was forgotten. */
#define FORGOTTEN (2 * SECOND)

/* Copies a SYN; false if it is too long. */
static __always_inline bool copy_syn(struct __sk_buff *skb, const struct packet *packet,
				     const struct connection *connection, __u32 worker, __u64 now,
				     struct held *held)
{
	__u32 length = packet->end - packet->start;
	/* One less, as verifiers bound a size from below only by adding to it (Linux 6.1). */
	__u64 size = length - 1;

	if (packet->end <= packet->start || length > LONGEST_SYN)
		return false;
	held->connection = *connection;
	held->worker = worker;
	held->at_ns = now;
	held->length = length;
	held->dscp = packet->dscp;
	held->transport = packet->transport - packet->start;
	if (bpf_skb_load_bytes_relative(skb, 0, held->ethernet, sizeof(held->ethernet),
					BPF_HDR_START_MAC))
		__builtin_memset(held->ethernet, 0, sizeof(held->ethernet));
	/* The compiler knows all that already, and the verifier has forgotten it: out of its sight the one
	 * says it to the other once more. */
	asm volatile("" : "+r"(size));
	size &= LONGEST_SYN;
	return !bpf_skb_load_bytes_relative(skb, packet->start, held->syn, size + 1,
					    BPF_HDR_START_NET);
}

/* Gives a SYN to user space, to ask its server; false if that does not keep up, or the SYN is too long. */
static __always_inline bool hold(struct __sk_buff *skb, const struct packet *packet,
				 const struct connection *connection, __u32 worker, bool again,
				 __u64 now)
{
	struct held *held = bpf_ringbuf_reserve(&held_syns, sizeof(*held), 0);

	if (!held)
		return false;
	held->again = again;
	held->confirm = true;
	held->consulted = false;
	held->interface = skb->ifindex;
	if (!copy_syn(skb, packet, connection, worker, now, held)) {
		bpf_ringbuf_discard(held, 0);
		return false;
	}
	bpf_ringbuf_submit(held, 0);
	return true;
}

/* Has a held SYN that comes back go on as if it had just come in where it first did, which is where this host expects
 * its client (`rp_filter`). GO_ON if it is none. */
static __always_inline int bring_back(struct __sk_buff *skb, const struct packet *packet)
{
	struct connection connection = connection_from_client(packet);
	struct syn_record *syn;

	if (packet->kind != TCP || !opens(packet))
		return GO_ON;
	syn = bpf_map_lookup_elem(&syn_records, &connection);
	if (!syn || syn->verdict != HELD || syn->sequence != packet->sequence)
		return GO_ON;
	/* It was not for the link by which it comes back; and one without a link layer has no say in this. */
	bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect(syn->interface, BPF_F_INGRESS);
}

/* Whether it is a SYN that was held before. */
static __always_inline bool is_held(const struct syn_record *known, const struct packet *packet, __u64 now)
{
	return known && known->verdict == HELD && known->sequence == packet->sequence &&
	       now - known->at_ns < MEMORY;
}

static __always_inline bool is_alive(const struct settings *set, __u32 slot, __u64 now)
{
	struct worker *worker = bpf_map_lookup_elem(&workers, &slot);

	return worker && (now <= worker->beat_ns || now - worker->beat_ns < set->patience_ns);
}

/* What becomes of a SYN that was held before: HELD if it still is. */
static __always_inline enum verdict held_again(struct __sk_buff *skb, const struct settings *set,
					       const struct packet *packet, struct syn_record *known,
					       __u64 now)
{
	struct connection connection = connection_from_client(packet);

	if (known->release == CONFIRMED) {
		known->verdict = SPLIT;
		known->at_ns = now;
		return SPLIT;
	}
	if (known->release == NOT_YET && now - known->at_ns < DUPLICATE)
		return HELD;
	if (known->release == NOT_YET && now - known->at_ns < FORGOTTEN &&
	    is_alive(set, known->listener / 2, now) &&
	    hold(skb, packet, &connection, known->listener / 2, true, now))
		return HELD;
	known->verdict = PASS_UNCONFIRMED;
	return PASS_UNCONFIRMED;
}
