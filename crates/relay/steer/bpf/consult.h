/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What this host's own rules say of a connection: whether it is forwarded at all, and where to. A client's first SYN to
 * a server goes through them as it would without a relay, with a copy kept. Should it come out again where it goes on to
 * the server, it is taken away there, and the copy comes back to be split; what rules drop, reject, or send elsewhere is
 * none of the relay's. What was found holds for a while. */
#pragma once

#include "hold.h"

/* How long what was found holds. When rules change it ends (`settings.rules`), as far as user space hears of it. */
#define PERMISSION_LIFE (60 * SECOND)

static __always_inline struct permit permit_of(struct __sk_buff *skb, const struct connection *connection)
{
	return (struct permit){
		.client = connection->client,
		.server = connection->server,
		.server_port = connection->server_port,
		.interface = skb->ifindex,
	};
}

/* What becomes of a connection that would have `verdict`: that, if rules are known to have nothing against it. */
static __always_inline enum verdict by_rules(struct __sk_buff *skb, const struct settings *set,
					     const struct connection *connection, enum verdict verdict,
					     __u64 now)
{
	struct permit permit = permit_of(skb, connection);
	struct permission *known = bpf_map_lookup_elem(&permissions, &permit);

	if (!known || known->rules != set->rules || now > known->until_ns)
		return CONSULTED;
	return known->translated ? PASS_TRANSLATED : verdict;
}

/* Shows a SYN to the rules; false if it is too long. */
static __always_inline bool consult(struct __sk_buff *skb, const struct settings *set,
				    const struct packet *packet, const struct connection *connection,
				    __u32 worker, bool confirm, __u64 now)
{
	__u32 zero = 0, stamp = set->mark << 16 | (bpf_get_prandom_u32() & 0xffff);
	struct held *copy = bpf_map_lookup_elem(&copies, &zero);

	if (!copy || !copy_syn(skb, packet, connection, worker, now, copy))
		return false;
	copy->again = false;
	copy->confirm = confirm;
	copy->consulted = true;
	copy->interface = skb->ifindex;
	if (bpf_map_update_elem(&consulted, &stamp, copy, BPF_ANY))
		return false;
	/* Of all that a packet has, this alone stays as it is on its way through the host. */
	bpf_set_hash(skb, stamp);
	return true;
}

/* A packet is about to leave this host. DROP if it is a SYN that was shown to the rules, and its copy is on its way back. */
static __always_inline int come_through(struct __sk_buff *skb, const struct settings *set)
{
	__u32 stamp = skb->hash;
	struct permission permission = {};
	struct syn_record *syn;
	struct permit permit;
	struct packet *packet;
	struct held *copy;
	__u32 injector = set->generation ? set->injectors[1] : set->injectors[0];
	__u64 now;

	/* Without a way back it goes on. */
	if (!set->consults || !injector || stamp >> 16 != (set->mark & 0xffff))
		return GO_ON;
	copy = bpf_map_lookup_elem(&consulted, &stamp);
	if (!copy)
		return GO_ON;
	syn = bpf_map_lookup_elem(&syn_records, &copy->connection);
	if (!syn || syn->verdict != CONSULTED || syn->at_ns != copy->at_ns)
		return GO_ON;
	packet = read(skb, OUT);
	if (!packet || packet->kind != TCP || !opens(packet) ||
	    packet->sequence != syn->sequence)
		return GO_ON;
	now = bpf_ktime_get_ns();
	permit = permit_of(skb, &copy->connection);
	permit.interface = copy->interface;
	/* The client's address may be another: the server's leg is translated likewise. */
	permission.translated = packet->destination_port != copy->connection.server_port;
	for (int i = 0; i < 4; i++)
		permission.translated |= packet->destination.word[i] != copy->connection.server.word[i];
	permission.until_ns = now + PERMISSION_LIFE;
	permission.rules = set->rules;
	bpf_map_update_elem(&permissions, &permit, &permission, BPF_ANY);
	if (permission.translated) {
		syn->verdict = PASS_TRANSLATED;
		count(PASS_TRANSLATED);
		return GO_ON;
	}
	syn->verdict = HELD;
	syn->release = copy->confirm ? NOT_YET : CONFIRMED;
	if (bpf_ringbuf_output(&held_syns, copy, sizeof(*copy), 0)) {
		/* User space does not keep up. */
		syn->verdict = PASS_FULL;
		count(PASS_FULL);
		return GO_ON;
	}
	return DROP;
}
