"""The messages of the Flight SQL specification that this port reads or writes: names, fields, numbers.

One line a message, each field `name:kind=number`, or with `|` for one of a choice. A kind is a scalar of protobuf,
`?` after it says that absence is told from the empty value, `*` that it repeats, `<…>` that it maps names to that
kind, and another message is named.
"""

from __future__ import annotations

FLIGHT = """
FlightDescriptor                type:int32=1 cmd:bytes=2 path:string*=3
Ticket                          ticket:bytes=1
Location                        uri:string=1
FlightEndpoint                  ticket:Ticket=1 location:Location*=2
FlightInfo                      schema:bytes=1 flight_descriptor:FlightDescriptor=2 endpoint:FlightEndpoint*=3 \
total_records:int64=4 total_bytes:int64=5
PollInfo                        info:FlightInfo=1 flight_descriptor:FlightDescriptor=2 progress:double?=3
SchemaResult                    schema:bytes=1
Action                          type:string=1 body:bytes=2
ActionType                      type:string=1 description:string=2
Result                          body:bytes=1
PutResult                       app_metadata:bytes=1
CancelFlightInfoRequest         info:bytes=1
CancelFlightInfoResult          status:int32=1
SessionOptionTexts              values:string*=1
SessionOptionValue              string_value:string|1 bool_value:bool|2 int64_value:sfixed64|3 double_value:double|4 \
string_list_value:SessionOptionTexts|5
SetSessionOptionsRequest        session_options:<SessionOptionValue>=1
SetSessionOptionsError          value:int32=1
SetSessionOptionsResult         errors:<SetSessionOptionsError>=1
GetSessionOptionsRequest
GetSessionOptionsResult         session_options:<SessionOptionValue>=1
CloseSessionRequest
CloseSessionResult              status:int32=1
"""

FLIGHT_SQL = """
CommandGetSqlInfo               info:uint32*=1
CommandGetXdbcTypeInfo          data_type:int32?=1
CommandGetCatalogs
CommandGetDbSchemas             catalog:string?=1 db_schema_filter_pattern:string?=2
CommandGetTables                catalog:string?=1 db_schema_filter_pattern:string?=2 \
table_name_filter_pattern:string?=3 table_types:string*=4 include_schema:bool=5
CommandGetTableTypes
CommandGetPrimaryKeys           catalog:string?=1 db_schema:string?=2 table:string=3
CommandGetExportedKeys          catalog:string?=1 db_schema:string?=2 table:string=3
CommandGetImportedKeys          catalog:string?=1 db_schema:string?=2 table:string=3
CommandGetCrossReference        pk_catalog:string?=1 pk_db_schema:string?=2 pk_table:string=3 \
fk_catalog:string?=4 fk_db_schema:string?=5 fk_table:string=6
CommandStatementQuery           query:string=1 transaction_id:bytes?=2
CommandStatementUpdate          query:string=1 transaction_id:bytes?=2
CommandStatementSubstraitPlan   plan:SubstraitPlan=1 transaction_id:bytes?=2
CommandPreparedStatementQuery   prepared_statement_handle:bytes=1
CommandPreparedStatementUpdate  prepared_statement_handle:bytes=1
TableDefinitionOptions          if_not_exist:int32=1 if_exists:int32=2
CommandStatementIngest          table_definition_options:TableDefinitionOptions=1 table:string=2 schema:string?=3 \
catalog:string?=4 temporary:bool=5 transaction_id:bytes?=6 options:<string>=1000
TicketStatementQuery            statement_handle:bytes=1
SubstraitPlan                   plan:bytes=1 version:string=2
DoPutUpdateResult               record_count:int64=1
DoPutPreparedStatementResult    prepared_statement_handle:bytes?=1
ActionCreatePreparedStatementRequest      query:string=1 transaction_id:bytes?=2
ActionCreatePreparedSubstraitPlanRequest  plan:SubstraitPlan=1 transaction_id:bytes?=2
ActionCreatePreparedStatementResult       prepared_statement_handle:bytes=1 dataset_schema:bytes=2 \
parameter_schema:bytes=3
ActionClosePreparedStatementRequest       prepared_statement_handle:bytes=1
ActionBeginTransactionRequest
ActionEndTransactionRequest     transaction_id:bytes=1 action:int32=2
ActionCancelQueryRequest        info:bytes=1
ActionCancelQueryResult         result:int32=1
"""
