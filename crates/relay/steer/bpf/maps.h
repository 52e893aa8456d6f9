/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#pragma once

#include "packet.h"

/* Every map has a fixed size. Those that packets fill forget the least recently used, and nothing
 * that an established connection needs is in them. */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GENERATIONS *WORKERS);
	__type(key, __u32);
	__type(value, struct worker);
} workers SEC(".maps");

/* Emptied by the kernel when a listener's process dies. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, LISTENERS);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

/* By relay and processor: the worker, from 1 on, that takes the connections which come in there; 0 if that
 * is not to matter. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GENERATIONS *PROCESSORS);
	__type(key, __u32);
	__type(value, __u32);
} nearby SEC(".maps");

struct policy {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PREFIXES);
	__type(key, struct prefix);
	__type(value, __u8); /* enum choice */
};

struct policy clients SEC(".maps");
struct policy servers SEC(".maps");

/* Of a client's address: the group of clients that it is in, from 1 on. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GROUPS);
	__type(key, struct prefix);
	__type(value, __u32);
} groups SEC(".maps");

/* What is decided of a group's connections to a server; and where nothing is, of all clients' to the servers of a prefix. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PLACES);
	__type(key, struct place);
	__type(value, struct chance);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PLACES);
	__type(key, struct prefix);
	__type(value, struct chance);
} chances SEC(".maps");

/* Whether to split connections to a port, a bit each. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536 / 64);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SYN_RECORDS);
	__type(key, struct connection);
	__type(value, struct syn_record);
} syn_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CLIENTS);
	__type(key, struct address);
	__type(value, struct bucket);
} rates SEC(".maps");

/* Clients that have as many connections split as they may. User space says which. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CLIENTS);
	__type(key, struct address);
	__type(value, __u8);
} full_clients SEC(".maps");

/* Connections that both sides, or the client and the relay, have agreed to. Only ended ones leave it. Their names are
 * their keys (see `name_of`): one look finds a packet's whichever end has sent it, and two of all that fit have the same
 * name once in 2^31. Its memory is there from the beginning: to allocate it takes a good part of what is done for a short
 * connection. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FLOWS);
	__type(key, __u64);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RECORDS);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, HELD_SYNS);
} held_syns SEC(".maps");

/* Until when a client may acknowledge a cookie of a listener's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cookies_until SEC(".maps");

/* By a stamp that their packets have. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CONSULTATIONS);
	__type(key, __u32);
	__type(value, struct held);
} consulted SEC(".maps");

/* Room to write one in. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct held);
} copies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PERMISSIONS);
	__type(key, struct permit);
	__type(value, struct permission);
} permissions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ROUTES);
	__type(key, struct address);
	__type(value, struct route);
} routes SEC(".maps");

/* Until when a server is taken to answer. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ANSWERING);
	__type(key, struct service);
	__type(value, __u64);
} answering SEC(".maps");

/* Which servers have ever answered with a code point (see `place_of`), a byte each: user space looks at them without a system
 * call, and only asks for the code point of those. */
struct marked_servers {
	__u8 marked[MARKED_SERVERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct marked_servers);
} marked_servers SEC(".maps");

/* The leg that a datagram in fragments is of. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DATAGRAMS);
	__type(key, struct datagram);
	__type(value, __u32); /* enum leg */
} datagrams SEC(".maps");

/* What is missing of what a client has sent on a split connection, by its leg's socket. */
struct upload {
	struct bpf_spin_lock lock;
	struct holes holes;
	__u64 cookie;     /* the socket's, by which it has a reminder; 0 as long as it never had one */
	__u32 reminds;    /* whether that is to go */
	__u32 interface;  /* index of the one that it goes by */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct upload);
} uploads SEC(".maps");

/* The last acknowledgement of a client's leg that did not tell all, which goes once more when it may tell more of it: nothing
 * else may make the leg acknowledge by then. By the socket's cookie. */
struct reminder {
	struct bpf_timer timer;
	__u64 due_ns;     /* 0: it has been told since */
	__u32 is_set;     /* the timer */
	__u32 written;    /* how often writing `ack` has begun or ended */
	struct kept_ack ack;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, REMINDERS);
	__type(key, __u64);
	__type(value, struct reminder);
} reminders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, DUE_REMINDERS);
} due_reminders SEC(".maps");

/* How late what clients send comes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LATENESSES);
	__type(key, struct address);
	__type(value, struct lateness);
} lateness_of SEC(".maps");

/* What has been found of that in a network, by its address: what its others begin with. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LATE_NETWORKS);
	__type(key, struct address);
	__type(value, struct lateness);
} lateness_in SEC(".maps");

/* A half-open connection of the kernel's, to be looked at. */
struct request {
	__u8 bytes[384];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* A packet as it was read, for each direction: on the stack verifiers would tell all ways apart that lead to it. */
enum { IN, OUT };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUT + 1);
	__type(key, __u32);
	__type(value, struct packet);
} packets SEC(".maps");

/* What was read of a packet before. */
static __always_inline struct packet *last_read(__u32 direction)
{
	return bpf_map_lookup_elem(&packets, &direction);
}

static __always_inline struct packet *read(struct __sk_buff *skb, __u32 direction)
{
	struct packet *packet = last_read(direction);

	if (packet)
		parse(skb, packet);
	return packet;
}

static __always_inline void count(__u32 verdict)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &verdict);

	if (value)
		*value += 1;
}
