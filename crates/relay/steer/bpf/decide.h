/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Whether a new connection is split, and by which worker. */
#pragma once

#include "connection.h"

#define SECOND 1000000000ull
/* What a remembered SYN says holds for so long: a SYN is sent again for two minutes (Linux, six
 * times), and a former connection is in TIME-WAIT for one. */
#define MEMORY (180 * SECOND)
/* Workers asked before a connection is passed. */
#define TRIES 4

static __always_inline enum choice choice_of(void *policy, const struct address *address)
{
	struct prefix key = { .bits = 128, .address = *address };
	__u8 *choice = bpf_map_lookup_elem(policy, &key);

	return choice ? *choice : PASS;
}

static __always_inline bool port_listed(__be16 port)
{
	__u16 number = bpf_ntohs(port);
	__u32 index = number / 64;
	__u64 *bits = bpf_map_lookup_elem(&ports, &index);

	return bits && (*bits >> (number % 64) & 1);
}

/* Whether this host would forward the packet: it is not for the host itself, and can be routed. */
static __always_inline bool forwards(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_fib_lookup fib = {};

	fib.l4_protocol = IPPROTO_TCP;
	fib.sport = packet->source_port;
	fib.dport = packet->destination_port;
	fib.ifindex = skb->ingress_ifindex;
	if (packet->version == 4) {
		fib.family = AF_INET;
		fib.tos = packet->dscp << 2;
		fib.ipv4_src = packet->source.word[3];
		fib.ipv4_dst = packet->destination.word[3];
	} else {
		fib.family = AF_INET6;
		__builtin_memcpy(fib.ipv6_src, &packet->source, sizeof(packet->source));
		__builtin_memcpy(fib.ipv6_dst, &packet->destination, sizeof(packet->destination));
	}
	switch (bpf_fib_lookup(skb, &fib, sizeof(fib), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return true;
	default:
		return false;
	}
}

/* Whom limits are counted for: an IPv4 address, or a /64 of IPv6, which one subscriber has
 * (RFC 7278). */
static __always_inline struct address subscriber_at(struct address client, __u8 version)
{
	if (version == 6)
		client.word[2] = client.word[3] = 0;
	return client;
}

static __always_inline struct address subscriber(const struct packet *packet)
{
	return subscriber_at(packet->source, packet->version);
}

/* Takes a token of the client's; two processors at once may take the same, which is near enough. */
static __always_inline bool within_rate(const struct settings *set, struct address client, __u64 now)
{
	struct bucket *bucket, fresh;
	__u64 most = set->syn_burst * SECOND, tokens;

	if (!set->syn_rate)
		return true;
	bucket = bpf_map_lookup_elem(&rates, &client);
	if (!bucket) {
		fresh = (struct bucket){ .at_ns = now, .tokens = most - SECOND };
		bpf_map_update_elem(&rates, &client, &fresh, BPF_ANY);
		return true;
	}
	/* What has come in since; more than an hour's worth would be more than any bucket holds. */
	tokens = now - bucket->at_ns;
	if (tokens > 3600 * SECOND)
		tokens = 3600 * SECOND;
	tokens = bucket->tokens + tokens * set->syn_rate;
	if (tokens > most)
		tokens = most;
	bucket->at_ns = now;
	if (tokens < SECOND) {
		bucket->tokens = tokens;
		return false;
	}
	bucket->tokens = tokens - SECOND;
	return true;
}

/* The network of an address: a /24, or a /48 of IPv6, which are the longest prefixes that networks announce to each
 * other. */
static __always_inline struct address network_of(const struct address *address)
{
	struct address prefix = *address;

	if (!address->word[0] && !address->word[1] && address->word[2] == bpf_htonl(0xffff)) {
		prefix.word[3] &= bpf_htonl(0xffffff00);
	} else {
		prefix.word[1] &= bpf_htonl(0xffff0000);
		prefix.word[2] = prefix.word[3] = 0;
	}
	return prefix;
}

static __always_inline bool returns_elsewhere(const struct address *server, __u64 now)
{
	/* Its way back is taken to be the same for all of a network. */
	struct address prefix = network_of(server);
	struct route *route = bpf_map_lookup_elem(&routes, &prefix);

	return route && now < route->until_ns;
}

/* How long a server that has answered is taken to do so again. */
#define ANSWERS_FOR (600 * SECOND)

static __always_inline bool is_answering(const struct packet *packet, __u64 now)
{
	struct service service = { .server = packet->destination, .port = packet->destination_port };
	__u64 *until = bpf_map_lookup_elem(&answering, &service);

	return until && now < *until;
}

/* A server has answered a connection's SYN. */
static __always_inline void learn(const struct connection *connection, __u64 now)
{
	struct service service = { .server = connection->server, .port = connection->server_port };
	__u64 until = now + ANSWERS_FOR, *known = bpf_map_lookup_elem(&answering, &service);

	/* Rarely written: all processors read it. */
	if (known && *known > until - ANSWERS_FOR / 2)
		return;
	bpf_map_update_elem(&answering, &service, &until, BPF_ANY);
}

/* What is decided of a new connection's place, if anything is. */
static __always_inline const struct chance *chance_of(struct packet *packet)
{
	struct prefix *prefix = &packet->prefix;
	struct place *place = &packet->place;
	struct chance *chance;
	__u32 *group;

	prefix->bits = 128;
	prefix->address = packet->source;
	group = bpf_map_lookup_elem(&groups, prefix);
	place->server = packet->destination;
	place->group = group ? *group : 0;
	chance = bpf_map_lookup_elem(&places, place);
	if (chance)
		return chance;
	prefix->address = packet->destination;
	return bpf_map_lookup_elem(&chances, prefix);
}

/* Whether a new connection is left alone for comparison: a client's all are for a slot, or none. What shares a link with
 * others of the same client would else be compared with what it slows down. */
static __always_inline bool is_held_out(const struct settings *set, struct packet *packet, __u64 hashed,
					__u64 now)
{
	struct syn_record *syn = &packet->syn;
	struct connection *unit = &packet->unit;
	const struct chance *chance;
	__u64 slot = 0;

	syn->holdout = set->holdout;
	if (set->slot_ns) {
		slot = now / set->slot_ns;
		__builtin_memset(unit, 0, sizeof(*unit));
		unit->client = subscriber(packet);
		unit->server.word[0] = slot;
		hashed = hash(unit, set->seed);
		/* Never 0. */
		syn->slot_ns = slot * set->slot_ns | 1;
	}
	chance = set->decides && !set->bare ? chance_of(packet) : NULL;
	if (chance) {
		bool is_new = slot >= chance->from_slot;

		syn->holdout = is_new ? chance->after : chance->before;
		syn->because = is_new ? chance->because_after : chance->because_before;
	}
	return (__u32)hashed % 1000 < syn->holdout;
}

/* Everything that does not depend on the relay's state. `*generation` is the relay's whose turn it is; `*confirm` says
 * that the server is to be asked first, `*consult` that this host's rules are. */
static __always_inline enum verdict policy_of(struct __sk_buff *skb, const struct settings *set,
					      struct packet *packet, __u64 hashed, __u64 now,
					      __u32 *generation, bool *confirm, bool *consult)
{
	enum choice client = choice_of(&clients, &packet->source), server;

	*generation = set->generation;
	*confirm = *consult = false;
	if (client == PASS)
		return PASS_CLIENT;
	if (client >= SPLIT_ALWAYS) {
		*generation = client - SPLIT_ALWAYS;
		return SPLIT;
	}
	packet->syn.learns = client == LEARN;
	server = choice_of(&servers, &packet->destination);
	if (server == PASS)
		return PASS_SERVER;
	*confirm = client == CONFIRM || server == CONFIRM ||
		   (client == LEARN && !is_answering(packet, now));
	*consult = set->consults;
	if (!port_listed(packet->destination_port))
		return PASS_PORT;
	if (set->pass_dscp >> packet->dscp & 1)
		return PASS_DSCP;
	if (is_signed(skb, packet))
		return PASS_SIGNED;
	if (!forwards(skb, packet))
		return PASS_LOCAL;
	if (set->suspended == set->generation + 1)
		return PASS_UNPROVEN;
	if (returns_elsewhere(&packet->destination, now))
		return PASS_ASYMMETRIC;
	/* The upper half chooses the worker. */
	if ((set->holdout || set->decides) && is_held_out(set, packet, hashed, now))
		return PASS_HOLDOUT;
	return SPLIT;
}

/* How long a cookie may be acknowledged (`TCP_SYNCOOKIE_VALID`). */
#define COOKIE_LIFE (120 * SECOND)

static __always_inline void cookies_begin(__u64 now)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&cookies_until, &zero);

	/* Rarely written, as all processors read it. */
	if (until && *until < now + COOKIE_LIFE)
		*until = now + COOKIE_LIFE + SECOND;
}

/* Whether the listener has room for one more. Where it answers by cookies, half-open connections are counted up to half
 * of its queue: more of them are a flood, and take no room. Where it does not, the queue must not fill. */
static __always_inline bool has_room(struct bpf_sock *listener, const struct worker *worker,
				     const struct settings *set, __u64 now)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(listener);
	__u32 waiting, most, half_open;

	if (!tcp)
		return false;
	waiting = tcp->inet_conn.icsk_inet.sk.sk_ack_backlog;
	most = tcp->inet_conn.icsk_inet.sk.sk_max_ack_backlog;
	half_open = tcp->inet_conn.icsk_accept_queue.qlen.counter;
	if (!set->syn_cookies) {
		if (half_open >= set->half_open)
			return false;
	} else if (half_open >= most / 2) {
		/* Before it begins to: other processors' SYNs are on their way to it too. */
		cookies_begin(now);
		half_open = 0;
	}
	return waiting + half_open < most && waiting + half_open < worker->room;
}

static __always_inline __u32 flows_of(__u32 generation, __u32 index)
{
	__u32 slot = generation % GENERATIONS * WORKERS + index % WORKERS;
	struct worker *worker = bpf_map_lookup_elem(&workers, &slot);

	return worker ? worker->flows : 0;
}

/* The worker that a connection falls to: the one that stays where its packets come in, as long as it has not much more
 * than its share; or else, of two by hash, the one that has fewer flows. */
static __always_inline __u32 first_choice(__u32 generation, __u32 all, __u32 hashed)
{
	__u32 key = generation % GENERATIONS * PROCESSORS + bpf_get_smp_processor_id() % PROCESSORS;
	__u32 *worker = bpf_map_lookup_elem(&nearby, &key);
	__u32 one, other;

	if (worker && *worker && *worker <= all)
		return *worker - 1;
	one = hashed % all;
	if (all == 1)
		return one;
	other = (one + 1 + (hashed >> 16) % (all - 1)) % all;
	return flows_of(generation, other) < flows_of(generation, one) ? other : one;
}

/* The listener of the worker that the connection falls to, or of the next that is alive and has
 * room. To be released. */
static __always_inline struct bpf_sock *choose(const struct settings *set, __u32 generation, bool v6,
					       __u32 hashed, __u64 now, __u32 *index,
					       enum verdict *verdict)
{
	__u32 all = generation ? set->workers[1] : set->workers[0];
	__u32 first = all ? first_choice(generation, all, hashed) : 0;

	*verdict = PASS_NO_RELAY;
	for (__u32 try = 0; try < TRIES && try < all; try++) {
		__u32 slot = generation % GENERATIONS * WORKERS + (first + try) % all % WORKERS;
		struct worker *worker = bpf_map_lookup_elem(&workers, &slot);
		struct bpf_sock *listener;

		if (!worker || !worker->open)
			continue;
		if (now > worker->beat_ns && now - worker->beat_ns > set->patience_ns)
			continue;
		*index = slot * 2 + v6;
		listener = bpf_map_lookup_elem(&listeners, index);
		if (!listener)
			continue;
		if (has_room(listener, worker, set, now))
			return listener;
		*verdict = PASS_FULL;
		bpf_sk_release(listener);
	}
	return NULL;
}
