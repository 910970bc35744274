// Gives a PJRT plugin the store of the run, through which its clients find each other. Only for client.cpp.
#pragma once

struct PJRT_Client_Create_Args;

namespace fettle {

class Rendezvous;

// Sets the callbacks for keys and values. `run` must outlive the client, whose threads call them.
void offer_store(Rendezvous& run, PJRT_Client_Create_Args& args);

}  // namespace fettle
