// An episode: collectives and messages that overlap in time and share links, played in a simulator of their
// own on their part of the network.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/mix.hpp"
#include "core/time.hpp"
#include "roce/queue_pair.hpp"
#include "twin/fabric/network.hpp"
#include "twin/network/link_counters.hpp"
#include "walker/walker.hpp"

namespace genie::twin {

// The latest service of a link by the switch that it leads to.
struct InputService {
  std::uint32_t link = 0;
  TimePs time = 0;
  std::uint32_t mark = 0;  // of those at one time and with one mark the order is that of the list
  bool is_later = false;   // after the episode has used the link, by others
  bool is_alone = true;    // its switch has served no other of them at that time
};
using InputServices = std::vector<InputService>;

// Results, with times from the first start on, by the numbers of the part and its ranks.
struct Episode {
  struct Node {
    TimePs end = kNever;         // kNever: it has not ended
    std::uint32_t end_link = 0;  // by which the packet came that ended it; RankDriver::kNoLink: a timer did
    std::vector<SendRecord> sends;
    std::vector<ReceiveRecord> receives;
  };
  struct Room {  // of a switch that shares a buffer
    std::int32_t node = 0;
    std::int64_t bytes = 0;  // of all queues, at the most
  };

  std::string refusal;                               // the reason for it; empty: it can stand for others
  TimePs until = kNever;                             // it is known so far; kNever: to its end
  bool is_over = false;                              // nothing of it is left
  bool is_at_rest = false;                           // its queue pairs are as before their first packets
  TimePs last = 0;                                   // when anything happened
  std::vector<std::vector<Node>> nodes;              // by rank, then by row
  std::vector<std::vector<std::int32_t>> end_order;  // by rank: rows
  std::vector<roce::QueuePairCounters> counters;     // by rank
  std::vector<LinkCounters> links;                   // by link
  std::vector<TimePs> cable_rests;  // by cable: it is not used from then on; kNever: not known
  std::vector<Room> rooms;
  InputServices services;  // in it, by time
  std::uint64_t data_packets = 0;

  bool is_whole() const { return until == kNever; }
  std::size_t memory_bytes() const;
};

// The plan of an episode.
struct EpisodePlan {
  struct Origin {                       // of a node
    std::uint32_t act = 0, member = 0;  // the act's tag, and the place among its members
    bool is_by_timer = true;            // its rank's timer starts it, and no packet of another episode

    std::uint64_t key() const { return pair_key(act, member); }
  };
  struct Node {
    Origin origin;
    NodeKind kind = NodeKind::kColl;
    TimePs start = 0;  // kNever: not yet known
    std::int64_t size_bytes = 0;
    std::int32_t after = -1;  // row of the rank at whose end it starts; -1: it starts at its time
    Binding binding;
  };
  SharedPlan shared;
  std::vector<std::unique_ptr<RankPlan>> ranks;
  std::vector<std::vector<Origin>> origins;  // by rank and row
  std::vector<std::int32_t> hosts;           // by rank
  std::vector<std::vector<std::uint8_t>>
      is_watched;  // by rank and row: a start beside which nothing may come

  void add_rank(std::int32_t host, const std::vector<Node>& nodes);
};

}  // namespace genie::twin
