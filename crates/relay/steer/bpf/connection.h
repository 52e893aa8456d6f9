/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Connections by a packet of theirs, and what they are called. */
#pragma once

#include "maps.h"

static __always_inline struct connection connection_from_client(const struct packet *packet)
{
	return (struct connection){
		.client = packet->source,
		.server = packet->destination,
		.client_port = packet->source_port,
		.server_port = packet->destination_port,
	};
}

static __always_inline struct connection connection_from_server(const struct packet *packet)
{
	return (struct connection){
		.client = packet->destination,
		.server = packet->source,
		.client_port = packet->destination_port,
		.server_port = packet->source_port,
	};
}

/* Takes one more word into a sum: multiply and fold. */
static __always_inline __u64 fold(__u64 sum, __u64 word)
{
	sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
	return sum ^ sum >> 32;
}

static __always_inline __u64 hash(const struct connection *connection, __u32 seed)
{
	const __u32 *word = (const __u32 *)connection;
	__u64 sum = seed;

	for (int i = 0; i < sizeof(*connection) / 4; i++)
		sum = fold(sum, word[i]);
	return sum;
}

static __always_inline __u64 hash_end(const struct address *address, __be16 port, __u32 seed)
{
	__u64 sum = fold(seed, (__u64)address->word[0] << 32 | address->word[1]);

	return fold(fold(sum, (__u64)address->word[2] << 32 | address->word[3]), port);
}

/* The name of the connection between two ends, whichever of them comes first. */
static __always_inline __u64 name_between(const struct address *one, __be16 port, const struct address *other,
					  __be16 others_port)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	__u32 seed = set ? set->seed : 0;

	return hash_end(one, port, seed) + hash_end(other, others_port, seed);
}

static __always_inline __u64 name_of(const struct packet *packet)
{
	return name_between(&packet->source, packet->source_port, &packet->destination, packet->destination_port);
}

/* The account that there is of the packet's connection. */
static __always_inline struct flow *flow_of(const struct packet *packet)
{
	__u64 name = name_of(packet);

	return bpf_map_lookup_elem(&flows, &name);
}

static __always_inline bool is_from_client(const struct packet *packet, const struct connection *connection)
{
	const struct address *client = &connection->client, *source = &packet->source;

	return packet->source_port == connection->client_port && source->word[3] == client->word[3] &&
	       source->word[2] == client->word[2] && source->word[1] == client->word[1] &&
	       source->word[0] == client->word[0];
}
